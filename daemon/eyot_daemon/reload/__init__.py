"""A changed configuration or token, carried into the running broker.

Entry points: `accounts.AccountService` (accounts at start and reload), `apply.change_options`, `claims_apply.ClaimsKeeper`
(tokens), `changes.changed_fields` (what a reload may change).
May import `config`, `turn`, `auth`, `router`, `client`, `leaf` and `process`; of other floors only wire. Only the server imports this package.
"""
