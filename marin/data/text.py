"""Plain text to documents, line by line, so that a file of any size fits and every fault has its place.

Line ends are ``\\n``; ``\\r\\n`` is read as ``\\n``, and a byte order mark at the very start is dropped. Nothing else
about the text is changed; a text whose lines end by a carriage return alone is refused. A paragraph ends at a line that is empty
or white.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Literal

from marin.errors import DataError

Split = Literal["lines", "paragraphs", "file"]

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def decode_line(line: bytes, *, start: int, where: str) -> str:
    """``line`` as text; ``start`` is its offset in the file.

    Raises:
        DataError: it is not UTF-8; the message has the offset of the first bad byte.
    """
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        bad = line[error.start : error.start + 1].hex()
        raise DataError(
            "text is not UTF-8",
            where=f"{where}: byte {start + error.start}",
            expected="UTF-8",
            found=f"0x{bad} ({error.reason})",
            cure="convert the file, for example with iconv -t UTF-8",
        ) from None


def lines(file: Iterable[bytes], *, where: str) -> Iterator[str]:
    """The lines of a text file without their ends.

    Raises:
        DataError: the text is not UTF-8, or all of it is one line here and several to its writer.
    """
    start = 0
    for line in file:
        content = line.removeprefix(BYTE_ORDER_MARK) if start == 0 else line
        if start == 0 and not line.endswith(b"\n") and (count := line[:-1].count(b"\r")):
            raise DataError(
                "lines that end by a carriage return alone",
                where=where,
                expected="lines that end by LF or CRLF",
                found=f"{count} carriage returns, and no LF",
                cure=r"convert the file: tr '\r' '\n' < FILE > OTHER",
            )
        yield (
            decode_line(content, start=start + len(line) - len(content), where=where)
            .removesuffix("\n")
            .removesuffix("\r")
        )
        start += len(line)


def paragraphs(text_lines: Iterable[str]) -> Iterator[str]:
    """Runs of lines between empty ones."""
    current: list[str] = []
    for line in text_lines:
        if line.strip():
            current.append(line)
        elif current:
            yield "\n".join(current)
            current = []
    if current:
        yield "\n".join(current)


def split_text(text_lines: Iterable[str], split: Split, paragraphs_per_document: int) -> Iterator[str]:
    """The documents of one text file: its lines, groups of its paragraphs, or all of it. Empty ones are left out."""
    match split:
        case "lines":
            yield from (line for line in text_lines if line.strip())
        case "paragraphs":
            remaining = paragraphs(text_lines)
            while group := list(islice(remaining, paragraphs_per_document)):
                yield "\n\n".join(group)
        case "file":
            whole = "\n".join(text_lines).strip("\n")
            if whole.strip():
                yield whole
