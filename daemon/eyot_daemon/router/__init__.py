"""Routing: accounts, their subscriptions, and the way of a message from one to the other.

Entry points: `broker.Broker` (all accounts; its turn is `core.BrokerCore`) and `account.Account.publish`.
`delivery.py` is the rule of who gets a message; `eyot_wire.native.FanOut` is its optimisation for plain publishes.
May import `config`, `turn` and, for annotations only, `auth.login` and `leaf.link`; of other floors wire and sync.
"""
