"""The machinery of the event loop: clock, timers, readable sockets, hand-over from threads, backpressure.

Entry points: `readers.Readers` reads sockets turn by turn, `timers.Timers` calls what is due.
The broker is known as `readers.TurnEnd` only: who ends a turn, and how long a reader waits.
May import no other package of the broker.
"""
