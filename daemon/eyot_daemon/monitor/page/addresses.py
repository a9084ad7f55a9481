"""The addresses of the local page: known to a daemon that serves none, which loads nothing else of the page."""

SESSION, LOGIN, LOGOUT = "/eyot/session", "/eyot/login", "/eyot/logout"
RECONNECT, FORGET, BACK_UP = "/eyot/actions/reconnect", "/eyot/actions/forget", "/eyot/actions/backup"
#: What logs users in and acts: each takes a POST.
ACTIONS = (SESSION, LOGIN, LOGOUT, RECONNECT, FORGET, BACK_UP)
#: The download of a backup, which takes a GET.
BACKUP = "/eyot/backup"
#: The support bundle; the control socket gives it without the page, too.
BUNDLE = "/eyot/support-bundle"
PATHS = ("/eyot/page", "/eyot/page.json", "/eyot/history.json", BUNDLE, BACKUP, *ACTIONS)
