"""The table of scenarios that every client plays on every server, see test_scenarios.py.

A scenario is a name and steps. A step is a command of the drivers in tests/interop/clients/ and, behind `->`, what the driver says to it
(`ok` if nothing is written). Words: connections (a, b, c), subscriptions (s, t, u), `-` for nothing. `next s` stands for
`next s 3000`, `none s` for a short wait in which nothing comes.
"""

CONFIG = """
max_payload: 10000
server_name: scenarios
accounts {
    APP {
        users: [
            { user: app, password: app }
            { user: limited, password: limited, permissions {
                publish { allow: ["ok.>", "_INBOX.>"], deny: "ok.not.>" }
                subscribe { allow: ["in.*", "_INBOX.>", "q.> workers"], deny: "in.secret" }
            } }
            { user: service, password: service, permissions { subscribe: "svc.>", publish { deny: ">" }, allow_responses: true } }
            { user: twice, password: twice, permissions {
                subscribe: "twice", publish { allow: ["own"] }, allow_responses { max: 2, expires: "1m" }
            } }
            { user: bcrypt, password: "%BCRYPT%" }
        ]
        exports: [
            { stream: "news.>" }, { service: "calc.*" }, { stream: "private.>", accounts: [OTHER] }
            { service: "many", response: stream }
        ]
        mappings {
            "old.*": "new.$1", "swap.*.*": "swapped.$2.$1", "part.*": "parted.{{partition(3,1)}}.$1"
            "literal": "mapped", "all.>": "everything.>"
        }
    }
    OTHER {
        users: [ { user: other, password: other } ]
        imports: [
            { stream: { account: APP, subject: "news.>" }, prefix: "from.app" }
            { stream: { account: APP, subject: "private.>" } }
            { service: { account: APP, subject: "calc.add" }, to: "add" }
            { service: { account: APP, subject: "many" } }
        ]
    }
    THIRD { users: [ { user: third, password: third } ] }
    NOBODY { users: [ { user: guest, password: guest, permissions { publish: "guest.>", subscribe: ["guest.>", "_INBOX.>"] } } ] }
}
no_auth_user: guest
"""

#: Steps that Debian's nats-server (2.9) answers otherwise than later versions, which Eyot follows.
ANSWERS_OF_2_9 = {"request b add 1+2 300": "timeout"}

Step = str

SCENARIOS: list[tuple[str, list[Step]]] = [
    # -- subjects
    ("publish", ["connect a app:app -", "sub s a foo -", "pub a foo - hello -", "next s -> foo - hello -"]),
    ("empty payload", ["connect a app:app -", "sub s a foo -", "pub a foo - - -", "next s -> foo - - -"]),
    ("reply", ["connect a app:app -", "sub s a foo -", "pub a foo back.1 x -", "next s -> foo back.1 x -"]),
    ("case of subjects", ["connect a app:app -", "sub s a Foo -", "pub a foo - 1 -", "pub a Foo - 2 -", "next s -> Foo - 2 -"]),
    ("star", ["connect a app:app -", "sub s a foo.* -", "pub a foo - 0 -", "pub a foo.a.b - 1 -", "pub a foo.a - 2 -", "next s -> foo.a - 2 -"]),
    ("star in the middle", ["connect a app:app -", "sub s a foo.*.bar -", "pub a foo.1.baz - 1 -", "pub a foo.2.bar - 2 -", "next s -> foo.2.bar - 2 -"]),
    ("rest", ["connect a app:app -", "sub s a foo.> -", "pub a foo - 0 -", "pub a foo.a - 1 -", "pub a foo.a.b - 2 -", "next s -> foo.a - 1 -", "next s -> foo.a.b - 2 -"]),
    ("star and rest", ["connect a app:app -", "sub s a *.x.> -", "pub a 1.x - 0 -", "pub a 1.x.y.z - 1 -", "next s -> 1.x.y.z - 1 -"]),
    ("dollar and dashes", ["connect a app:app -", "sub s a $my.a-b_c/d -", "pub a $my.a-b_c/d - 1 -", "next s -> $my.a-b_c/d - 1 -"]),
    ("many levels", ["connect a app:app -", "sub s a a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.> -", "pub a a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q - 1 -", "next s -> a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q - 1 -"]),
    # -- subscriptions
    ("two subscriptions of one connection", ["connect a app:app -", "sub s a foo -", "sub t a foo -", "pub a foo - 1 -", "next s -> foo - 1 -", "next t -> foo - 1 -"]),
    ("overlapping subscriptions", ["connect a app:app -", "sub s a foo.bar -", "sub t a foo.* -", "sub u a > -", "pub a foo.bar - 1 -", "next s -> foo.bar - 1 -", "next t -> foo.bar - 1 -", "next u -> foo.bar - 1 -"]),
    ("two connections", ["connect a app:app -", "connect b app:app -", "sub s a foo -", "flush a", "pub b foo - 1 -", "next s -> foo - 1 -"]),
    ("order", ["connect a app:app -", "connect b app:app -", "sub s a o.* -", "flush a", "pub b o.1 - 1 -", "pub b o.2 - 2 -", "pub b o.1 - 3 -", "next s -> o.1 - 1 -", "next s -> o.2 - 2 -", "next s -> o.1 - 3 -"]),
    ("unsubscribe", ["connect a app:app -", "sub s a foo -", "sub t a foo -", "pub a foo - 1 -", "next s -> foo - 1 -", "unsub s 0", "pub a foo - 2 -", "next t -> foo - 1 -", "next t -> foo - 2 -"]),
    ("unsubscribe after two", ["connect a app:app -", "sub s a foo -", "unsub s 2", "sub t a foo -", "pub a foo - 1 -", "pub a foo - 2 -", "pub a foo - 3 -", "next t -> foo - 1 -", "next t -> foo - 2 -", "next t -> foo - 3 -", "next s -> foo - 1 -", "next s -> foo - 2 -"]),
    ("closing ends subscriptions", ["connect a app:app -", "connect b app:app -", "sub s a foo -", "flush a", "close a", "request b foo x 2000 -> no_responders"]),
    ("no echo", ["connect a app:app no_echo", "connect b app:app -", "sub s a foo -", "sub t b foo -", "flush a", "flush b", "pub a foo - mine -", "next t -> foo - mine -", "flush a", "none s", "pub b foo - yours -", "next s -> foo - yours -"]),
    ("verbose", ["connect a app:app verbose", "sub s a foo -", "pub a foo - 1 -", "flush a", "next s -> foo - 1 -"]),
    ("pedantic", ["connect a app:app pedantic", "sub s a foo -", "pub a foo - 1 -", "flush a", "next s -> foo - 1 -"]),
    ("verbose and pedantic", ["connect a app:app verbose,pedantic", "sub s a foo -", "unsub s 1", "pub a foo - 1 -", "next s -> foo - 1 -"]),
    # -- queue groups
    ("queue of one", ["connect a app:app -", "sub s a foo q", "pub a foo - 1 -", "next s -> foo - 1 -"]),
    ("queue and plain", ["connect a app:app -", "sub s a foo q", "sub t a foo -", "pub a foo - 1 -", "next s -> foo - 1 -", "next t -> foo - 1 -"]),
    ("two queues", ["connect a app:app -", "sub s a foo q1", "sub t a foo q2", "pub a foo - 1 -", "next s -> foo - 1 -", "next t -> foo - 1 -"]),
    ("one member gets it", ["connect a app:app -", "connect b app:app -", "serve s a foo q 1", "serve t b foo q 1", "flush a", "flush b", "sub u a r -", "flush a", "pub a foo r x -", "next u -> r - x1 -", "none u"]),
    ("a member leaves", ["connect a app:app -", "connect b app:app -", "sub s a foo q", "sub t b foo q", "flush a", "flush b", "close b", "pub a foo - 1 -", "pub a foo - 2 -", "next s -> foo - 1 -", "next s -> foo - 2 -"]),
    ("queue with wildcard", ["connect a app:app -", "sub s a foo.* q", "pub a foo.1 - 1 -", "next s -> foo.1 - 1 -"]),
    # -- headers
    ("one header", ["connect a app:app -", "sub s a foo -", "pub a foo - 1 Key=value", "next s -> foo - 1 Key=value"]),
    ("several headers", ["connect a app:app -", "sub s a foo -", "pub a foo r 1 A=1;B=2;C=3", "next s -> foo r 1 A=1;B=2;C=3"]),
    ("headers without payload", ["connect a app:app -", "sub s a foo -", "pub a foo - - A=1", "next s -> foo - - A=1"]),
    ("headers to a queue", ["connect a app:app -", "sub s a foo q", "pub a foo - 1 A=1", "next s -> foo - 1 A=1"]),
    # -- requests
    ("request", ["connect a app:app -", "connect b app:app -", "serve s a svc - -pong", "flush a", "request b svc ping 3000 -> ping-pong"]),
    ("request of a queue", ["connect a app:app -", "connect b app:app -", "serve s a svc q 1", "serve t b svc q 1", "flush a", "flush b", "request b svc x 3000 -> x1"]),
    ("request nobody answers", ["connect a app:app -", "request a nobody x 3000 -> no_responders"]),
    ("request that is heard and not answered", ["connect a app:app -", "connect b app:app -", "sub s b deaf -", "flush b", "request a deaf x 150 -> timeout", "next s | deaf"]),
    ("respond by hand", ["connect a app:app -", "sub s a svc -", "sub t a mine -", "pub a svc mine ask -", "next s -> svc mine ask -", "respond s answer", "next t -> mine - answer -"]),
    ("several requests", ["connect a app:app -", "connect b app:app -", "serve s a svc - !", "flush a", "request b svc 1 3000 -> 1!", "request b svc 2 3000 -> 2!", "request b svc 3 3000 -> 3!"]),
    # -- limits
    ("max payload is told", ["connect a app:app -", "max_payload a -> 10000"]),
    ("the largest message", ["connect a app:app -", "sub s a foo -", "big a foo - 10000 -", "size s 3000 -> 10000"]),
    ("too large a message", ["connect a app:app -", "big a foo - 10001 - -> max_payload"]),
    # -- who
    ("wrong password", ["connect a app:wrong - -> authorization"]),
    ("unknown user", ["connect a stranger:app - -> authorization"]),
    ("a password of another user", ["connect a app:other - -> authorization"]),
    ("a token where there is none", ["connect a token:app - -> authorization"]),
    ("a password as bcrypt hash", ["connect a bcrypt:secret -", "sub s a foo -", "pub a foo - 1 -", "next s -> foo - 1 -"]),
    ("a wrong password for a bcrypt hash", ["connect a bcrypt:wrong - -> authorization"]),
    ("who says nothing is the guest", ["connect a - -", "sub s a guest.x -", "pub a guest.x - 1 -", "next s -> guest.x - 1 -"]),
    ("the guest's limits", ["connect a - -", "pub a other.x - 1 -", "flush a", "violation a -> publish other.x"]),
    # -- permissions
    ("publish allowed", ["connect a app:app -", "connect b limited:limited -", "sub s a ok.> -", "flush a", "pub b ok.1 - 1 -", "next s -> ok.1 - 1 -"]),
    ("publish not allowed", ["connect a app:app -", "connect b limited:limited -", "sub s a > -", "flush a", "pub b elsewhere - 1 -", "flush b", "violation b -> publish elsewhere", "none s"]),
    ("publish denied", ["connect a app:app -", "connect b limited:limited -", "sub s a ok.> -", "flush a", "pub b ok.not.x - 1 -", "flush b", "violation b -> publish ok.not.x", "none s"]),
    ("subscribe allowed", ["connect a app:app -", "connect b limited:limited -", "sub s b in.1 -", "flush b", "pub a in.1 - 1 -", "next s -> in.1 - 1 -"]),
    ("subscribe not allowed", ["connect b limited:limited -", "sub s b elsewhere -", "flush b", "violation b -> subscription elsewhere"]),
    ("subscribe denied", ["connect b limited:limited -", "sub s b in.secret -", "flush b", "violation b -> subscription in.secret"]),
    ("a wildcard over a denied subject", ["connect a app:app -", "connect b limited:limited -", "sub s b in.* -", "flush b", "pub a in.secret - 0 -", "pub a in.open - 1 -", "next s -> in.open - 1 -"]),
    ("a wildcard wider than allowed", ["connect b limited:limited -", "sub s b > -", "flush b", "violation b -> subscription >"]),
    ("an allowed queue", ["connect a app:app -", "connect b limited:limited -", "sub s b q.1 workers", "flush b", "pub a q.1 - 1 -", "next s -> q.1 - 1 -"]),
    ("another queue", ["connect b limited:limited -", "sub s b q.1 others", "flush b", "violation b -> subscription q.1"]),
    ("a service may answer once", ["connect a app:app -", "connect b service:service -", "sub s b svc.x -", "flush b", "sub t a mine -", "pub a svc.x mine ask -", "next s -> svc.x mine ask -", "respond s 1", "next t -> mine - 1 -", "respond s 2", "flush b", "none t"]),
    ("a service may do nothing else", ["connect b service:service -", "pub b elsewhere - 1 -", "flush b", "violation b -> publish elsewhere"]),
    ("two answers and its own subject", ["connect a app:app -", "connect b twice:twice -", "sub s b twice -", "flush b", "sub t a mine -", "sub u a own -", "pub a twice mine ask -", "next s -> twice mine ask -", "respond s 1", "respond s 2", "respond s 3", "pub b own - 4 -", "next t -> mine - 1 -", "next t -> mine - 2 -", "next u -> own - 4 -", "none t"]),
    # -- accounts
    ("accounts are apart", ["connect a app:app -", "connect b third:third -", "sub s b > -", "flush b", "pub a foo - 1 -", "pub a news.x - 1 -", "flush a", "none s"]),
    ("an imported stream", ["connect a app:app -", "connect b other:other -", "sub s b from.app.news.* -", "flush b", "pub a news.x - 1 -", "next s -> from.app.news.x - 1 -"]),
    ("an imported stream under everything", ["connect a app:app -", "connect b other:other -", "sub s b > -", "flush b", "pub a news.x - 1 -", "next s -> from.app.news.x - 1 -"]),
    ("a private stream", ["connect a app:app -", "connect b other:other -", "sub s b private.* -", "flush b", "pub a private.x - 1 A=1", "next s -> private.x - 1 A=1"]),
    ("an imported service", ["connect a app:app -", "connect b other:other -", "serve s a calc.add - =3", "flush a", "request b add 1+2 3000 -> 1+2=3"]),
    ("a service that is not imported", ["connect a app:app -", "connect b third:third -", "serve s a calc.add - =3", "flush a", "request b calc.add 1+2 3000 -> no_responders"]),
    ("an imported service nobody serves", ["connect b other:other -", "request b add 1+2 300 -> no_responders"]),
    # -- mappings
    ("a mapping", ["connect a app:app -", "sub s a new.* -", "sub t a old.* -", "pub a old.x - 1 -", "next s -> new.x - 1 -", "none t"]),
    ("tokens swapped", ["connect a app:app -", "sub s a swapped.> -", "pub a swap.1.2 - x -", "next s -> swapped.2.1 - x -"]),
    ("a literal mapping", ["connect a app:app -", "sub s a mapped -", "pub a literal - x A=1", "next s -> mapped - x A=1"]),
    ("everything below", ["connect a app:app -", "sub s a everything.> -", "pub a all.1.2 - x -", "next s -> everything.1.2 - x -"]),
    ("partitions", ["connect a app:app -", "sub s a parted.> -", "pub a part.foo - x -", "next s -> parted.0.foo - x -", "pub a part.bar - x -", "next s -> parted.2.bar - x -"]),
    ("a request that is mapped", ["connect a app:app -", "serve s a mapped - !", "flush a", "request a literal x 3000 -> x!"]),
]  # fmt: skip
