"""Keys and tokens of decentralized authentication: nkeys, JWTs, credentials, auth callout.

Entry points: `jwt.decode`, `nkey.verify` and `nkey.Signer`, `creds.parse_creds`, `auth_callout.encode_request`.
Imports single modules of `eyot_wire`; the current time is an argument.
"""
