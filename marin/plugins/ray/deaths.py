"""Why a process of a Ray died, in words that may go to a ledger which others read: without names of machines, addresses
or paths, which Ray's own messages are full of.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path

LONGEST = 400

_EXIT = re.compile(r"Worker exit type: (\w+)")
_PROCESS = re.compile(r"\bpid: (\d+)")
_FATAL = re.compile(r"^(F\d{4} |Fatal |\*\*\* SIG|terminate called|.*Check failed)")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
_PATH = re.compile(r"(?<![\w.])/(?:[\w.+@-]+/)*[\w.+@-]+")
_IDENTIFIER = re.compile(r"\b[0-9a-f]{24,}\b")


def describe_death(error: BaseException, logs: Path | None = None) -> str:
    """The kind of ``error`` and of what caused it, how the worker ended where Ray says so, else what was said.
    ``logs``: the folder of this machine's Ray with the workers' standard error, where one that ended itself said
    why."""
    causes = [error]
    while (cause := _cause(causes[-1])) is not None and cause not in causes:
        causes.append(cause)
    kinds = " from ".join(dict.fromkeys(type(cause).__name__ for cause in causes))
    said = " ".join(str(cause) for cause in causes)
    ended = _EXIT.search(said)
    if ended is not None:
        words = _last_words(said, logs)
        return f"{kinds} ({ended.group(1)}{': ' if words else ''}{words})"
    if type(causes[-1]).__module__.partition(".")[0] == "ray":  # the rest is tables and traces
        line = next((line for line in str(causes[-1]).splitlines() if line.strip()), "")
        return f"{kinds}: {redact(line)}"[:LONGEST] if line else kinds
    return f"{kinds}: {redact(str(causes[-1]))}"[:LONGEST]


def redact(text: str) -> str:
    """``text`` on one line, without this machine's name, addresses, paths and Ray's identifiers."""
    line = " ".join(text.split())
    host = socket.gethostname()
    if len(host) > 1:
        line = re.sub(rf"\b{re.escape(host)}\b", "(host)", line)
    for pattern, word in ((_ADDRESS, "(address)"), (_PATH, "(path)"), (_IDENTIFIER, "(id)")):
        line = pattern.sub(word, line)
    return line


def _last_words(said: str, logs: Path | None) -> str:
    """What the process that ``said`` names wrote before it ended itself; "" when it did not, as one that was killed."""
    process = _PROCESS.search(said)
    if process is None or logs is None:
        return ""
    for file in sorted(logs.glob(f"worker-*-{process.group(1)}.err")):
        fatal = [line for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if _FATAL.match(line)]
        if fatal:
            return redact(fatal[-1])[:LONGEST]
    return ""


def _cause(error: BaseException) -> BaseException | None:
    """What ``error`` wraps: Ray Train keeps the error of a worker, and of a health check, in attributes of its own."""
    for name in ("_base_exc", "health_check_failure", "controller_failure", "cause"):
        inner = getattr(error, name, None)
        if isinstance(inner, BaseException):
            return inner
    return None
