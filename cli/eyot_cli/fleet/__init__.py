"""`eyot fleet`: devices as a whole, each a user of an account: enrolment tokens, the service that answers, revocation.

Entry point: `group.fleet`. The records are files beside nsc's store, where the keys that sign are.
Imports `trust`, `messages`, `connection`, `terminal`, `values` and `eyot_wire`.
"""
