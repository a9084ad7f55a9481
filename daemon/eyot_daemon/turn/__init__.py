"""The loop's machinery: clock, timers, reading of sockets, calls from other threads, who has to wait."""
