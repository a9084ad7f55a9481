"""`eyot pub`, `sub`, `request`, `reply`, `trace` and `events`: messages that are sent, received and followed.

Entry points: `pub.publish`, `sub.subscribe`, `request.request`, `replies.reply`, `traces.trace`, `events.events`. `common.py` has what they
share, `payloads.py` and `templates.py` make what is sent.
Imports `jetstream`, `connection`, `terminal`, `values` and `eyot_wire`.
"""
