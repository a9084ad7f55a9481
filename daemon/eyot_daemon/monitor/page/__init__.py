"""The local page of a device: `eyot { http { page: true } }`.

    page.html    what the browser shows: one document, no request to another origin
    addresses.py the addresses below `/eyot/`
    answers.py   what they answer, and who may ask
    access.py    login, actions and their rules, with the sessions of `eyot_serving`; controls.py: what the actions steer
    backup_download.py  backups of streams for the browser
    report.py    `/eyot/page.json`
    history.py   the last day of each stream, kept in a ring
    sampler.py   the samples of the history
    bundle.py    the support bundle, with the configuration of redacted_config.py
    service.py   all of it as a service of the daemon

`recent_log.py` holds what the report shows besides. Entry point: `service.PageService`.
May import `monitor` and what `monitor` may import.
"""
