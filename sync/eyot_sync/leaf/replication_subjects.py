"""The subjects of mirrors and sources that a link's rules deny, each in the form of a permission entry.

A mirror or source on one side of a link replicates a stream on the other side through five subjects: the consumer
request under the origin's domain, its answer (`$JSC.R`), the messages (`$JS.S` for sources, `$JS.M` for mirrors), and
the answers to flow control (`$JS.FC`). A link without one of them is up, and nothing is replicated.
"""

from __future__ import annotations

from eyot_sync.leaf.rules import RuleSet

_ANSWER = b"$JSC.R.*"
_MESSAGES = (b"$JS.S.*", b"$JS.M.*")
_FLOW_CONTROL = b"$JS.FC.>"


def denied_downstream(rules: RuleSet, domain: str, *, may_reply: bool = False) -> list[str]:
    """Return the subjects that the peer needs to replicate streams of this server (of `domain`) and is denied.

    `may_reply`: answers pass without being allowed.
    """
    send = [] if may_reply else [_ANSWER]
    return _denied(rules, sent=(*send, *_MESSAGES), received=(_api(domain), _FLOW_CONTROL)) if domain else []


def denied_sourcing(rules: RuleSet, peer_domain: str) -> list[str]:
    """Return the subjects that this server needs to replicate streams of the peer (of `peer_domain`) and is denied."""
    if not peer_domain:
        return []
    return _denied(rules, sent=(_api(peer_domain), _FLOW_CONTROL), received=(_ANSWER, *_MESSAGES))


def _api(domain: str) -> bytes:
    return b"$JS.%b.API.CONSUMER.CREATE.>" % domain.encode()


def _denied(rules: RuleSet, *, sent: tuple[bytes, ...], received: tuple[bytes, ...]) -> list[str]:
    found = [each for each in sent if not rules.send.permits_interest(each)]
    found += [each for each in received if not rules.receive.permits_interest(each)]
    return [each.decode() for each in found]
