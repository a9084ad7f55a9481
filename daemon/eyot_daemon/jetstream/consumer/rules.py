"""A consumer's configuration as the delivery state needs it."""

from eyot_daemon.jetstream.consumer.state import AckRules
from eyot_wire.jetstream.model import ConsumerConfig

#: A wait for acknowledgements that does not end: a hundred years.
NO_WAIT_S = 100 * 365 * 86_400.0


def ack_rules(config: ConsumerConfig) -> AckRules:
    """Nanoseconds become seconds, 0 and less become "no limit"."""
    if config.ack_policy == "flow_control":
        # The reader says how far it is, which acknowledges everything up to there; nothing is delivered twice.
        return AckRules(policy="all", ack_wait_s=NO_WAIT_S, max_ack_pending=config.max_ack_pending)
    return AckRules(
        policy=config.ack_policy,
        ack_wait_s=config.ack_wait / 1e9,
        backoff_s=tuple(wait / 1e9 for wait in config.backoff),
        max_deliver=config.max_deliver,
        max_ack_pending=config.max_ack_pending,
    )
