"""Text that others wrote, as eyes may see it: what would steer a terminal, reorder a line or hide shows as its escape.

Commit ids, versions, names, paths, metrics and messages come out of logs that anybody may have written. Every piece of
text that is printed, logged or drawn goes through :func:`visible`, in the rooms that print: :mod:`marin.cli.output`,
:class:`marin.process.logs.OneLine` for logging, :mod:`marin.reporting.template` for pages.
"""

from __future__ import annotations

import json
import re
import time

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(
    chr(code)
    for start, end in ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xE0100, 0xE01EF))
    for code in range(start, end + 1)
)
"""Characters that count as printable and draw nothing (Unicode: Default_Ignorable_Code_Point, and the empty Braille
pattern)."""

_LIBRARY_COMMAND = re.compile("`(?=(?:ledger|store) )")
"""Where a command begins in a message of the library, which knows of no program: `ledger serve`."""
_UNSEEN_IN_JSON = re.compile(r"[^ -~]")
_ON_A_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
"""Made once: a log of ten thousand events prints as many lines."""


def as_commands(text: str) -> str:
    """What the library says, with its commands as they are typed here: `marin ledger serve`."""
    return _LIBRARY_COMMAND.sub("`marin ", text)


def visible(text: str, keep: str = "") -> str:
    """``text`` with everything that does not draw one glyph in reading order written as an escape such as ``\\x1b`` or
    ``\\u202e``: control and format characters (C0, C1, bidirectional, zero-width), line and paragraph separators,
    spaces that are not U+0020, surrogates, unassigned and private characters, blank fillers. ``keep``: characters that
    stay, such as a newline where the reader lays lines out.
    """
    if text.isprintable() and (text.isascii() or _BLANK.isdisjoint(text)):
        return text
    escaped = (one if _has_glyph(one) or one in keep else one.encode("unicode_escape").decode("ascii") for one in text)
    seen = "".join(escaped)
    return text if seen == text else seen  # the same object: callers tell by it that nothing had to change


def visible_json(value: object, indent: int | None = None) -> str:
    """``value`` as JSON in which every such character is written ``\\uXXXX``: the same value for a program.

    Raises:
        ValueError: a number that JSON does not have.
    """
    if indent is None:
        text = _ON_A_LINE.encode(value)
    else:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ": "), indent=indent)
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN_IN_JSON.sub(lambda found: _in_json(found[0]), text)


def _has_glyph(letter: str) -> bool:
    return letter.isprintable() and letter not in _BLANK


def _in_json(letter: str) -> str:
    # A newline can only be one of the indentation: inside of strings JSON has it escaped already.
    return letter if letter == "\n" or _has_glyph(letter) else json.dumps(letter)[1:-1]


ERASED = "\r\x1b[K"
"""Goes to the begin of a terminal's line and empties it: a bar or a count of seconds may stand there, of any process."""


def number_text(value: float) -> str:
    """A number as people write it: counts whole, all others with six digits."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"


SEEN_DIGITS = 12
"""Of a digest that stands in a sentence or a tag; records and pages have all of it."""


def short(digest: str) -> str:
    """A digest as people read and type it, by its first digits."""
    return digest.removeprefix("sha256:")[:SEEN_DIGITS]


def clipped(text: str, most: int) -> str:
    """``text`` in at most so many letters; three points end it where there was more."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def several(count: int, what: str) -> str:
    """So many of ``what``, which is said as of several and ends in an s: "1 event", "4 events", "1 train step"."""
    return f"{count} {what.removesuffix('s') if count == 1 else what}"


_last_output = [time.monotonic()]


def mark_output() -> None:
    """Something was just said to the one who waits; what prints and what logs call it."""
    _last_output[0] = time.monotonic()


def seconds_silent() -> float:
    """Seconds in which nothing was said; at first, since this process began."""
    return time.monotonic() - _last_output[0]
