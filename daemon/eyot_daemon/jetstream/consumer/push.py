"""What holds a push consumer back: the flow-control window, and the rate limit. Pure; times in monotonic seconds.

Flow control (ADR-15 and nats-server): every delivery counts towards the bytes in flight. When more than half of the
window is in flight, one request goes out on the deliver subject, its reply subject naming it; the answer takes off what
was in flight when it was asked, and doubles the window up to its limit. Above the window nothing more is delivered, and
heartbeats name the subject whose answer is awaited, in case request or answer were lost.
"""

#: The largest window, bytes.
WINDOW_MAX = 32 * 1024 * 1024
#: A window starts at this fraction of the largest one.
WINDOW_START = 16

#: In the answer of a reader (2.14, Eyot): how many deliveries it has had.
LAST_CONSUMER = b"Nats-Last-Consumer"
#: In the answer of a reader whose answers acknowledge: the last stream sequence that it has settled (2.14).
LAST_STREAM = b"Nats-Last-Stream"
FLOW_CONTROL_REQUEST = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


class FlowControl:
    """The window of one push consumer. `awaited` is the subject whose answer is due, b"" for none."""

    __slots__ = ("_asked_for", "awaited", "in_flight", "limit", "window")

    def __init__(self, limit: int = WINDOW_MAX) -> None:
        self.limit = limit
        self.window = max(1, limit // WINDOW_START)
        self.in_flight = 0
        self.awaited = b""
        self._asked_for = 0

    @property
    def stalled(self) -> bool:
        """Nothing may be delivered until an answer comes."""
        return self.in_flight > self.window

    def delivered(self, size: int) -> bool:
        """`size` bytes left; True if a request should follow them (`ask`)."""
        self.in_flight += size
        return not self.awaited and self.in_flight > self.window // 2

    def ask(self, subject: bytes) -> None:
        """The request named `subject` leaves now."""
        self.awaited = subject
        self._asked_for = self.in_flight

    def answered(self, subject: bytes) -> bool:
        """An answer arrived; False if it is not the one awaited."""
        if subject != self.awaited:
            return False
        self.window = min(self.window * 2, self.limit)
        self.in_flight = max(0, self.in_flight - self._asked_for)
        self.awaited = b""
        self._asked_for = 0
        return True

    def reset(self) -> None:
        """The subscriber is a new one: nothing is in flight to it."""
        self.window = max(1, self.limit // WINDOW_START)
        self.in_flight = 0
        self.awaited = b""
        self._asked_for = 0


class RateLimit:
    """A bucket of bytes that fills at `bits_per_s`. A message may overdraw it; the next one waits for the balance."""

    __slots__ = ("_balance", "_burst", "_filled_at", "_rate")

    def __init__(self, bits_per_s: int, now: float) -> None:
        self._rate = max(1.0, bits_per_s / 8)
        self._burst = self._rate  # one second's worth
        self._balance = self._burst
        self._filled_at = now

    def wait_s(self, now: float) -> float:
        """How long the next message must wait; 0: it may leave now."""
        self._balance = min(self._burst, self._balance + (now - self._filled_at) * self._rate)
        self._filled_at = now
        return 0.0 if self._balance > 0 else -self._balance / self._rate + 1e-6

    def spend(self, size: int) -> None:
        self._balance -= size
