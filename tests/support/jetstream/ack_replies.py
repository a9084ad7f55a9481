"""Acknowledgement subjects of deliveries, as a server makes them."""


def encode_ack_reply(
    stream: bytes, consumer: bytes, delivered: int, sseq: int, cseq: int, ts_ns: int, pending: int
) -> bytes:
    """Return the v1 acknowledgement subject of one delivery."""
    return b"$JS.ACK.%b.%b.%d.%d.%d.%d.%d" % (stream, consumer, delivered, sseq, cseq, ts_ns, pending)
