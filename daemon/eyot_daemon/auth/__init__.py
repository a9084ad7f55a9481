"""Authentication and authorization: configured users, operator JWTs, account tokens, auth callout.

Entry point: `authenticators.Authenticators`, made from the options; what a listener asks is `login.Authenticator`.
`login.py` has the types that all others share, `trust.py` the accounts of operator mode.
May import `config`, `turn`, `router` and `net`; of other floors wire, and the store where it keeps tokens.
"""
