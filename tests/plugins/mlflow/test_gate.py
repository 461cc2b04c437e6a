"""The gate before MLflow's server, asked directly: tokens, hosts, origins, cookies."""

from __future__ import annotations

import asyncio
import re
from http.cookies import SimpleCookie
from typing import Any

import pytest

from marin.plugins.mlflow.server.gate import Gate

TOKEN = "ab" * 32
OWN = "http://127.0.0.1:5000"
BEARER = {"authorization": f"Bearer {TOKEN}"}


async def inner(scope: Any, receive: Any, send: Any) -> None:
    told = [(b"x-from", b"inner"), (b"x-path", scope.get("path", "").encode())]
    await send({"type": "http.response.start", "status": 200, "headers": told})
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
    gate: Gate | None = None,
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

    gate = gate or Gate(inner, token=TOKEN, host=bound, port=5000)
    asyncio.run(gate(scope, lambda: None, send))  # type: ignore[arg-type]
    if said[0]["type"] == "websocket.close":
        return 0, {}
    return said[0]["status"], {name.decode(): value.decode() for name, value in said[0]["headers"]}


def status(*args: Any, **kwargs: Any) -> int:
    return asked(*args, **kwargs)[0]


class Browser:
    """A gate whose printed address a browser has opened: it keeps the cookie, and sends it below its path alone."""

    def __init__(self) -> None:
        self.gate = Gate(inner, token=TOKEN, host="127.0.0.1", port=5000)
        code, headers = asked(query=f"token={TOKEN}", gate=self.gate)
        assert code == 303
        ((self.name, self.cookie),) = SimpleCookie(headers["set-cookie"]).items()
        self.room = headers["location"].rstrip("/")

    def asks(self, method: str = "GET", path: str = "/", **given: Any) -> tuple[int, dict[str, str]]:
        sent = {"cookie": f"other=1; {self.name}={self.cookie.value}"} if path.startswith(self.cookie["path"]) else {}
        return asked(method, path, gate=self.gate, **sent, **given)

    def status(self, method: str = "GET", path: str = "/x", **given: Any) -> int:
        return self.asks(method, self.room + path, **given)[0]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"])
def test_nobody_passes_without_the_token(method: str):
    assert status(method) == 401
    assert status(method, authorization="Bearer ") == 401
    assert status(method, authorization=f"Bearer {TOKEN[:-1]}") == 401
    assert status(method, authorization=f"Basic {TOKEN}") == 401
    assert status(method, authorization="Bearer \xff") == 401
    assert status(method, cookie="marin-ui=") == 401
    assert status(method, cookie=f"marin-ui={TOKEN}") == 401
    assert status(method, **BEARER) == 200
    assert status(method, **BEARER, twice="authorization") == 401


def test_the_printed_address_leads_a_browser_into_a_room_whose_key_is_not_the_token():
    code, headers = asked(path="/x", query=f"a=1&token={TOKEN}&b=%26")
    room = headers["location"].removesuffix("/x?a=1&b=%26")
    assert code == 303 and re.fullmatch("/[0-9a-f]{32}", room)
    kept = re.fullmatch(f"marin-ui=([0-9a-f]{{64}}); Path={room}/; HttpOnly; SameSite=Strict", headers["set-cookie"])
    assert kept is not None and kept[1] != TOKEN
    elsewhere = asked(path="//elsewhere.example/", query=f"token={TOKEN}")[1]["location"]
    assert re.fullmatch("/[0-9a-f]{32}/elsewhere.example/", elsewhere)
    assert status(query="token=wrong") == 401
    assert status("POST", query=f"token={TOKEN}") == 401
    assert status("POST", query="&".join(["a=1"] * 1000) + f"&token={TOKEN}") == 401


def test_a_room_and_its_key_are_of_one_server_and_of_nobody_who_does_not_know_its_path():
    mine, other = Browser(), Browser()
    assert mine.asks(path=f"{mine.room}/a/b")[1]["x-path"] == "/a/b"
    assert mine.asks(path="/")[0] == 401, "a browser sends the cookie below the room alone"
    told = {"cookie": f"marin-ui={mine.cookie.value}"}
    assert status(path="/", gate=mine.gate, **told) == 401
    assert status(path=f"{mine.room}x/", gate=mine.gate, **told) == 401
    assert status(path=f"{other.room}/", gate=mine.gate, **told) == 401
    assert status(path=f"{other.room}/", gate=other.gate, **told) == 401, "another server's key"
    assert status(path=f"{mine.room}/", gate=mine.gate) == 401, "the path alone opens nothing"
    assert status(gate=mine.gate, authorization=f"Bearer {mine.cookie.value}") == 401, "the key is no token"
    assert asked(path=f"{mine.room}/x", query=f"token={TOKEN}", gate=mine.gate)[1]["location"] == f"{mine.room}/x"
    assert asked(path=f"{mine.room}/x", gate=mine.gate, **BEARER)[1]["x-path"] == "/x"


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
    browser = Browser()
    assert browser.status() == 200
    assert browser.status(origin="http://127.0.0.1:8000") == 403
    assert browser.status(origin="null") == 403
    assert status(**BEARER, origin="https://evil.example") == 403
    assert browser.status(sec_fetch_site="cross-site") == 403
    assert browser.status(sec_fetch_site="same-site") == 403
    assert browser.status("POST") == 403
    assert browser.status("POST", sec_fetch_site="none") == 403
    assert browser.status("POST", origin=OWN) == 200
    assert browser.status("DELETE", sec_fetch_site="same-origin") == 200
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
