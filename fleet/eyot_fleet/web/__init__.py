"""The fleet's web page: ten thousand devices in a browser, live, with logins, roles and actions.

    site.py       which address is answered by whom; documents.py: the files of page/, with their policy
    views.py      a row of the list; identity.py: who logged in; answers.py: the headers of all answers
    access.py     who is logged in, within which bounds; nats_login.py and oidc.py check logins
    devices.py    pages of devices, and one device with its day
    feeds.py      server-sent events: what changed of what a viewer sees
    actions.py    what operators do, each noted in the audit stream first; trust_commands.py: revocations and tokens
    backend.py    what the page needs of the service

Entry point: `site.Site`. Imports `eyot_fleet`, `eyot_serving` and `eyot_wire`; `serving` and `wire` know nothing of it.
"""
