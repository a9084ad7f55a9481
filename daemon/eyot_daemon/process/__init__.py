"""The daemon as a process: services and their life cycle, log, signals, state files, systemd.

Entry points: `service.Service` (the protocol of all services) and `service.reload_all`, `signals.watch_signals`,
`watchdog.Watchdog`, `logs.Logs`.
May import `config`, `net` and, for what services share, `router`; of other floors only wire.
"""
