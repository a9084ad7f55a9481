"""The request that opens a WebSocket: credentials in cookies, beside cookies of others."""

import pytest

from eyot_daemon.config.options import WebsocketOptions
from eyot_daemon.net.websocket_upgrade import check_upgrade

OPTIONS = WebsocketOptions(user_cookie="u", pass_cookie="p")


@pytest.mark.parametrize(
    ("header", "user", "password"),
    [
        ("u=a; p=b", "a", "b"),
        ('u="a b";p="b"', "a b", "b"),
        ("u=a=b==; p=", "a=b==", ""),
        ('analytics={"id":1}; u=a; list[0]=1; p=b', "a", "b"),
        ("no value; u=a; x@y=1; expires=never;p=b ; z=\xe9", "a", "b"),
        ("u=a; u=b; p=x\\y", "b", ""),
        ("U=a; =b; ;", "", ""),
    ],
)
def test_cookies_of_others_do_not_hide_credentials(header: str, user: str, password: str) -> None:
    cookies = check_upgrade("/", {"host": "here", "cookie": header}, OPTIONS, secure=False).cookies
    assert (cookies.user, cookies.password) == (user, password)
