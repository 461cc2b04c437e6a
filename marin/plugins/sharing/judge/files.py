"""The judge as files that lie beside a report: the page, which holds its program, and the program by itself, for node."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

PAGE, PROGRAM = "check.html", "check.mjs"
_HERE = Path(__file__).parent


def judge_files(style: str) -> Mapping[str, bytes]:
    """Both, by name. The page runs this program and no other, in a worker of its own and with the WebAssembly that it makes, and
    reaches the server that it came from and nothing else.
    ``style``: that of the pages beside it."""
    program = (_HERE / PROGRAM).read_text("utf-8")
    assert "</script" not in program and "\r" not in program, "the page holds it, byte for byte"
    allowed = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{allowed}' 'wasm-unsafe-eval'; worker-src blob:; "
        "style-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    page = (_HERE / PAGE).read_text("utf-8")
    for place, text in (("POLICY", policy), ("STYLE\n", style), ("MODULE", program)):
        before, after = page.split(place, 1)
        page = before + text + after
    return {PAGE: page.encode(), PROGRAM: program.encode()}
