"""Answers of the page's addresses, with the headers that all of them have."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from eyot_serving.http_messages import HttpResponse

HEADERS = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def json_answer(body: object, status: int = 200, *headers: tuple[str, str]) -> HttpResponse:
    """Return an answer in JSON."""
    return HttpResponse(msgspec.json.encode(body), status=status, headers=(*HEADERS, *headers))


def refusal(status: int, text: str, *headers: tuple[str, str]) -> HttpResponse:
    """Return an error with its reason, for the page to show."""
    return json_answer({"error": text}, status, *headers)


def redirect(address: str, *headers: tuple[str, str]) -> HttpResponse:
    """Send the browser elsewhere."""
    return HttpResponse(b"", "text/plain; charset=utf-8", 303, (*HEADERS, ("Location", address), *headers))


def with_headers(answer: HttpResponse, *headers: tuple[str, str]) -> HttpResponse:
    """Return an answer with more headers."""
    return replace(answer, headers=(*answer.headers, *headers))
