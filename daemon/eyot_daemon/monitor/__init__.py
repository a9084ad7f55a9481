"""Status pages, metrics, and the system account's events and services.

Entry points: `service.MonitoringService` (listeners and events), `pages.Monitoring` (each page by its path),
`metrics.exposition`, `system_events.SystemEvents`.
May import `auth`, `config`, `turn`, `router`, `client`, `leaf`, `net` and `process`; of other floors serving and wire. JetStream is known by
`router.providers` only.
"""
