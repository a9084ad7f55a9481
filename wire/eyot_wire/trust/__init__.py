"""Keys and tokens of decentralised trust: nkeys, JWTs, credentials, callouts."""
