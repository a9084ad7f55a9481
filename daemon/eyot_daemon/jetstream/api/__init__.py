"""The JetStream API: its subjects, and who answers them.

Entry point: `dispatch.AccountApi`, which answers `$JS.API.>` in one account. Each other module has the handlers of some requests and lists
them in `ENDPOINTS`; those of consumers stand in `jetstream/consumer/api.py`.
May import `backup/`, `stream/`, `config/` and the modules of `jetstream` but its engine and service. Only the engine imports this package.
"""
