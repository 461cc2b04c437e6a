"""The gate before MLflow's server, asked directly: tokens, hosts, origins, cookies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from marin.tracking.mlflow.server.gate import Gate

TOKEN = "ab" * 32
OWN = "http://127.0.0.1:5000"
COOKIE = {"cookie": f"other=1; marin-ui-5000={TOKEN}"}
BEARER = {"authorization": f"Bearer {TOKEN}"}


async def inner(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-from", b"inner")]})
    await send({"type": "http.response.body", "body": b""})


def asked(
    method: str = "GET",
    path: str = "/",
    query: str = "",
    *,
    host: str | None = "127.0.0.1:5000",
    bound: str = "127.0.0.1",
    twice: str = "",
    kind: str = "http",
    **headers: str,
) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer."""
    named = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    if host is not None:
        named.append((b"host", host.encode()))
    if twice:
        named.append((twice.encode(), b"again"))
    scope = {"type": kind, "method": method, "path": path, "query_string": query.encode(), "headers": named}
    said: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    asyncio.run(Gate(inner, token=TOKEN, host=bound, port=5000)(scope, lambda: None, send))  # type: ignore[arg-type]
    if said[0]["type"] == "websocket.close":
        return 0, {}
    return said[0]["status"], {name.decode(): value.decode() for name, value in said[0]["headers"]}


def status(*args: Any, **kwargs: Any) -> int:
    return asked(*args, **kwargs)[0]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"])
def test_nobody_passes_without_the_token(method: str):
    assert status(method) == 401
    assert status(method, authorization="Bearer ") == 401
    assert status(method, authorization=f"Bearer {TOKEN[:-1]}") == 401
    assert status(method, authorization=f"Basic {TOKEN}") == 401
    assert status(method, authorization="Bearer \xff") == 401
    assert status(method, cookie="marin-ui-5000=") == 401
    assert status(method, cookie=f"marin-ui-5001={TOKEN}") == 401
    assert status(method, **BEARER) == 200
    assert status(method, **BEARER, twice="authorization") == 401


def test_the_printed_address_leaves_a_cookie_and_goes_on_without_the_token():
    code, headers = asked(path="/x", query=f"a=1&token={TOKEN}&b=%26")
    assert (code, headers["location"]) == (303, "/x?a=1&b=%26")
    assert headers["set-cookie"] == f"marin-ui-5000={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    assert asked(path="//elsewhere.example/", query=f"token={TOKEN}")[1]["location"] == "/elsewhere.example/"
    assert status(query="token=wrong") == 401
    assert status("POST", query=f"token={TOKEN}") == 401
    assert status("POST", query="&".join(["a=1"] * 1000) + f"&token={TOKEN}") == 401


def test_a_name_that_was_rebound_to_this_address_is_refused():
    for host in (
        "evil.example:5000",
        "127.0.0.1",
        "127.0.0.1:80",
        "localhost.evil.example:5000",
        None,
        "",
        "[",
        "a@127.0.0.1:5000",
    ):
        assert status(host=host, **BEARER) == 421
    assert status(twice="host", **BEARER) == 421
    for host in ("localhost:5000", "[::1]:5000"):
        assert status(host=host, **BEARER) == 200
    assert status(host="192.0.2.7:5000", **BEARER) == 421
    assert status(host="192.0.2.7:5000", bound="0.0.0.0", **BEARER) == 200
    assert status(host="evil.example:5000", bound="0.0.0.0", **BEARER) == 421
    assert status(host="my.machine:5000", bound="my.machine", **BEARER) == 200


def test_other_origins_are_refused_and_a_cookie_alone_changes_nothing():
    assert status(**COOKIE) == 200
    assert status(**COOKIE, origin="http://127.0.0.1:8000") == 403
    assert status(**COOKIE, origin="null") == 403
    assert status(**BEARER, origin="https://evil.example") == 403
    assert status(**COOKIE, sec_fetch_site="cross-site") == 403
    assert status(**COOKIE, sec_fetch_site="same-site") == 403
    assert status("POST", **COOKIE) == 403
    assert status("POST", **COOKIE, sec_fetch_site="none") == 403
    assert status("POST", **COOKIE, origin=OWN) == 200
    assert status("DELETE", **COOKIE, sec_fetch_site="same-origin") == 200
    assert status("POST", **BEARER) == 200


def test_artifacts_never_run_as_pages_of_the_server_and_sockets_are_closed():
    code, headers = asked(path="/get-artifact", **BEARER)
    assert (code, headers["content-security-policy"], headers["x-from"]) == (200, "sandbox", "inner")
    policy = asked(path="/", **BEARER)[1]["content-security-policy"]
    assert policy.startswith("default-src 'self' ")
    assert not {"*", "http:", "https:"} & set(policy.replace(";", " ").split()), (
        "a note's picture is fetched from nowhere"
    )
    assert status(kind="websocket", **BEARER) == 0
