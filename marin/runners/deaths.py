"""Why a process of a Ray died, in words that may go to a ledger which others read: without names of machines, addresses
or paths, which Ray's own messages are full of.
"""

from __future__ import annotations

import re
import socket

LONGEST = 400

_EXIT = re.compile(r"Worker exit type: (\w+)")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
_PATH = re.compile(r"(?<![\w.])/(?:[\w.+@-]+/)*[\w.+@-]+")
_IDENTIFIER = re.compile(r"\b[0-9a-f]{24,}\b")


def described(error: BaseException) -> str:
    """The kind of ``error`` and of what caused it, how the worker ended where Ray says so, else what was said."""
    causes = [error]
    while (cause := _cause(causes[-1])) is not None and cause not in causes:
        causes.append(cause)
    kinds = " from ".join(dict.fromkeys(type(cause).__name__ for cause in causes))
    ended = _EXIT.search(" ".join(str(cause) for cause in causes))
    if ended is not None:
        return f"{kinds} ({ended.group(1)})"
    if type(causes[-1]).__module__.partition(".")[0] == "ray":
        return kinds
    return f"{kinds}: {redacted(str(causes[-1]))}"[:LONGEST]


def redacted(text: str) -> str:
    """``text`` on one line, without this machine's name, addresses, paths and Ray's identifiers."""
    line = " ".join(text.split())
    host = socket.gethostname()
    if len(host) > 1:
        line = re.sub(rf"\b{re.escape(host)}\b", "(host)", line)
    for pattern, word in ((_ADDRESS, "(address)"), (_PATH, "(path)"), (_IDENTIFIER, "(id)")):
        line = pattern.sub(word, line)
    return line


def _cause(error: BaseException) -> BaseException | None:
    """What ``error`` wraps: Ray Train keeps the error of a worker, and of a health check, in attributes of its own."""
    for name in ("_base_exc", "health_check_failure", "controller_failure", "cause"):
        inner = getattr(error, name, None)
        if isinstance(inner, BaseException):
            return inner
    return None
