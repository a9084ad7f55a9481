"""`STREAM.EYOT_FORGET`: forgets downstreams of a stream that will not return."""

from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint
from eyot_store.errors import StoreError
from eyot_wire.jetstream.error_codes import JSBadRequestErr, JSConsumerStoreFailedErrF
from eyot_wire.jetstream.errors import error, fail
from eyot_wire.jetstream.forget_downstream import WORDS, ForgetRequest, ForgottenPart


def _forget(request: ApiRequest) -> None:
    stream = request.stream(request.tokens[4])
    asked = request.decode(ForgetRequest)
    if not asked.server:
        raise fail(JSBadRequestErr)

    def done(forgotten: int, reading: int, failure: StoreError | None) -> None:
        if failure is not None:
            request.refuse(error(JSConsumerStoreFailedErrF, err=failure.message))
        else:
            request.respond(ForgottenPart(forgotten=forgotten, reading=reading))

    stream.downstream.forget_those(asked, done)


ENDPOINTS = (Endpoint(WORDS, "eyot_forget_response", _forget, untold=True),)
