"""JetStream as a service of the daemon.

The module loads without JetStream and the store, which are a third of what there is to load: only a daemon that uses them waits
for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.config.options import Options
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.process.start_error import Cause, StartError
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import HealthzQuery, Unhealthy

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.jetstream.api_request import Endpoint
    from eyot_daemon.jetstream.backup.download import Download
    from eyot_daemon.jetstream.consumer.consumers import Consumers
    from eyot_daemon.jetstream.running import RunningJetStream
    from eyot_store.errors import StoreError
    from eyot_store.store import Store
    from eyot_wire.jetstream.forget_downstream import ForgetRequest

log = logging.getLogger("eyot")

#: nats-server's words for configured JetStream that does not run.
NOT_ENABLED = "JetStream not enabled (10076)"
_KEY_REMEDY = "configure the key that it is encrypted with, or restore a backup into an empty store_dir"


class DamagedStore(StartError):
    """The store cannot be read: clients that need no JetStream are served all the same."""

    def __init__(self, path: Path, why: str, remedy: str) -> None:
        """`remedy`: what brings it back, where a repair does not."""
        self.path = path
        self.why = why
        self.remedy = remedy or f"stop the daemon and run `eyot-check --repair {path}`"
        super().__init__(f"Can't start JetStream: {why}; {self.remedy}", Cause.STORE)


class JetStreamService:
    """JetStream of one daemon. `running` is None where it is not configured, could not be started, or has ended."""

    name = "JetStream"

    def __init__(self, broker: Broker, env: Mapping[str, str]) -> None:
        self.broker = broker
        self.running: RunningJetStream | None = None
        self._env = env
        self._damage = ""  # why the store could not be opened; "" where it could, or where JetStream is not configured
        self._has_ended = False
        self._endpoints: tuple[Endpoint, ...] = ()

    @property
    def store(self) -> Store | None:
        """The store, while JetStream runs."""
        return None if self.running is None else self.running.store

    def account(self, name: str) -> tuple[JetStreamAccount, Consumers] | None:
        """Return JetStream in an account, and the consumers; None where it is off, or does not run."""
        if self.running is None:
            return None
        engine = self.running.engine
        found = engine.accounts.get(name)
        return (found, engine.consumers) if found is not None and found.enabled else None

    def forget_downstreams(
        self, account: str, stream: str, asked: ForgetRequest, done: Callable[[int, int, str], None]
    ) -> bool:
        """Forget downstreams of a stream that will not return, as `eyot sync forget`; False: there is no such stream.

        `done` receives how many were forgotten, how many were kept because they replicate at present, and the error of
        the store, "" for none, once that is on flash.
        """
        found = self.account(account)
        known = None if found is None else found[0].streams.get(stream)
        if known is None:
            return False
        known.downstream.forget_those(
            asked, lambda gone, kept, failure: done(gone, kept, "" if failure is None else failure.message)
        )
        return True

    def back_up(self, account: str, stream: str, begun: Callable[[Download | None, str], None]) -> None:
        """Begin a backup of a stream, which its receiver pulls; `begun` receives it, or why there is none."""
        from eyot_daemon.jetstream.backup.download import begin_download

        found = self.account(account)
        if found is None:
            begun(None, "there is no such stream")
        else:
            begin_download(found[0], stream, begun)

    def answer_also(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Answer more requests of the JetStream API: those of a package above this one."""
        self._endpoints = endpoints
        if self.running is not None:
            self.running.engine.add_endpoints(endpoints)

    @property
    def path(self) -> Path | None:
        """The directory of the store, while JetStream runs."""
        return None if self.running is None else self.running.path

    def set_group_window(self, seconds: float) -> None:
        """Let commits of streams that allow it wait up to this long for others."""
        if self.running is not None:
            self.running.store.set_group_window(seconds)

    def configure(self, options: Options) -> Options:
        """All is checked where the options are read; whether the store can be opened shows when it is."""
        return options

    def start(self, prepared: Options, runtime: Runtime) -> None:
        """Open the store and serve. Raises StartError, but not for a store that is damaged."""
        if prepared.jetstream is None:
            return
        try:
            self._begin(prepared.jetstream, prepared)
        except DamagedStore as error:
            log.error("%s. Core NATS is served", error)
            self._note_damage(error)

    def reload(self, prepared: Options, steps: ReloadSteps) -> None:
        """Limits and accounts change, JetStream is switched on, or off. Raises StartError, StoreError."""
        wanted, running = prepared.jetstream, self.running
        if self._has_ended:
            return
        if wanted is None:
            steps.last(self._end)
        elif running is None:
            self._reload_begin(wanted, prepared, steps)
        else:
            before = running.options

            def undo() -> None:
                running.reload(before)
                running.disable_accounts()

            steps.undo(undo)
            running.reload(wanted)
            steps.last(running.disable_accounts)

    def _reload_begin(self, wanted: JetStreamOptions, options: Options, steps: ReloadSteps) -> None:
        """Try again to start a damaged store, which may have been repaired; otherwise the reload changes nothing."""
        damage = self._damage
        if not damage:
            steps.undo(self._end)
        try:
            self._begin(wanted, options)
        except DamagedStore as error:
            if not damage:
                raise
            log.error("%s", error)
            return
        self._damage = ""

    def accounts_changed(self) -> None:
        """Apply changed account tokens (the broker's options contain them)."""
        options = self.broker.options.jetstream
        if self.running is not None and options is not None:
            self.running.reload(options)
            self.running.disable_accounts()

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        if self.broker.options.jetstream is None or query.js_server_only:
            return None
        if self.running is None:
            return 503, f"{NOT_ENABLED}: {self._damage}" if self._damage else NOT_ENABLED
        from eyot_daemon.jetstream.status import health

        return health(self.running, query)

    def stop(self) -> None:
        """Commit submitted transactions, send their answers, and close the store; no reload starts JetStream again."""
        self._has_ended = True
        self._end()

    def close(self) -> None:
        """Release the store after the daemon failed."""
        running, self.running = self.running, None
        if running is not None:
            running.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _begin(self, options: JetStreamOptions, all_options: Options) -> None:
        """Start JetStream. Raises StartError, DamagedStore; then nothing of it is left."""
        from eyot_daemon.jetstream.running import RunningJetStream
        from eyot_daemon.jetstream.status import provide
        from eyot_store.errors import StoreError

        running = RunningJetStream(self.broker, options, all_options.eyot.store, self._env)
        try:
            running.start()
        except OSError as error:
            _abandon(running)
            text = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
            raise StartError(f"Can't start JetStream: {text}", Cause.STORE) from error
        except StoreError as error:
            _abandon(running)
            if error.reason == "corrupt":
                raise DamagedStore(running.path, error.message, error.remedy) from error
            raise _cannot_start(error) from error
        except BaseException:
            _abandon(running)
            raise
        self.running = running
        running.engine.add_endpoints(self._endpoints)
        provide(running, self.broker.providers)

    def _note_damage(self, error: DamagedStore) -> None:
        from eyot_daemon.jetstream.status import provide_failed

        self._damage = error.why
        provide_failed(str(error.path), error.why, error.remedy, self.broker.providers)

    def _end(self) -> None:
        running, self.running = self.running, None
        self._damage = ""
        if running is not None:
            log.info("Initiating JetStream Shutdown...")
            running.stop()
            log.info("JetStream Shutdown")
        self.broker.providers.withdraw_jetstream()


def _cannot_start(error: StoreError) -> StartError:
    """Return the error for a store that is sound, and that this daemon cannot open."""
    text = f"Can't start JetStream: {error}"
    if error.reason == "key":
        return StartError(f"{text}: {_KEY_REMEDY}", Cause.STORE_KEY)
    return StartError(text, Cause.STORE_FORMAT if error.reason == "format" else Cause.STORE)


def _abandon(running: RunningJetStream) -> None:
    """Stop what had started of a failed start."""
    try:
        running.stop()
    except Exception:
        log.exception("JetStream that did not start could not be stopped")
