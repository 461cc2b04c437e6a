"""The user's own files, named by globs: .txt (and BabyLM's .train, .dev, .test) as text, .jsonl (plain or packed) as one
object per line.

The order of documents is that of the globs, then of the files' names (by code point, whatever the file system says),
then of the file. A file that two globs match is read once. Names that are recorded are relative to the folder that the
glob starts from, so the same files under another path are the same corpus.
"""

from __future__ import annotations

import glob
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from marin.data.chat import texts_of
from marin.data.documents import ANSWER, CHOSEN, REJECTED, Document, Span
from marin.data.lines.packed import MOST_RATIO, SUFFIXES, Damaged, reading, unpacked
from marin.data.lines.parsing import field_of, parsed
from marin.data.preferences import conversations
from marin.data.reach import expand
from marin.data.text import BYTE_ORDER_MARK, Split, decode_line, lines, split_text
from marin.errors import DataError, DataMissing, NoConversation

_TEXT = (".txt", ".train", ".dev", ".test")
KINDS = (*_TEXT, ".jsonl", *(f".jsonl{packed}" for packed in SUFFIXES))
MOST_LINE = 128 << 20
"""Bytes of a line of a packed file."""
Written = Callable[[Mapping[str, object], str], tuple[str, tuple[Span, ...]]]
"""A line's conversation as a text, and what of it is learned; the text behind it says where the line is."""
MOST_NAMED = 100
"""Lines without a conversation that are named; all are counted."""


@dataclass
class Skipped:
    """Lines of chats that are not conversations: how many, and the first of them."""

    count: int = 0
    first: list[dict[str, str | int]] = field(default_factory=list)

    def add(self, file: SourceFile, line: int, error: NoConversation) -> None:
        """One more."""
        self.count += 1
        if len(self.first) < MOST_NAMED:
            self.first.append({"file": file.name, "line": line, "expected": error.expected, "found": error.found})


@dataclass
class Marked:
    """Conversations whose messages hold texts that are ``special`` tokens of the tokenizer, and so become these: how many."""

    special: frozenset[str]
    count: int = 0

    def look_at(self, messages: object) -> None:
        """Count a conversation that does."""
        self.count += any(mark in text for text in texts_of(messages) for mark in self.special)


@dataclass(frozen=True)
class SourceFile:
    """A file to read: where it lies, and the name it has in the corpus."""

    path: Path
    name: str

    def digest(self) -> str:
        """``sha256:`` of its bytes.

        Raises:
            DataError: it cannot be read.
            DataMissing: a file of the data cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise DataMissing(
                "data file cannot be read",
                where=str(self.path),
                found=error.strerror or str(error),
                cure="check that it is there and that you may read it",
            ) from error


def mirrored_glob(pattern: str) -> str:
    """``pattern`` below the folder ``MARIN_DATA`` if something matches there, otherwise as it is."""
    folder = os.environ.get("MARIN_DATA")
    if not folder or ".." in Path(pattern).parts or Path(pattern).is_absolute():
        return pattern
    below = (Path(glob.escape(folder)) / pattern).as_posix()
    return below if glob.glob(below, recursive=True) else pattern


def matched(globs: Iterable[str], *, what: str = "dataset.globs", kinds: tuple[str, ...] = KINDS) -> list[SourceFile]:
    """The files that the globs name, in order, each once; where two globs would give the same name to two files, the
    later one has the number of its glob before it.

    Raises:
        DataError: a glob matches nothing, or a file of a kind that cannot be read.
        DataMissing: no file matches.
    """
    found: dict[Path, SourceFile] = {}
    names: set[str] = set()
    for number, pattern in enumerate(globs, start=1):
        base = _base(pattern)
        files = sorted((path for path in map(Path, expand(pattern, what=what)) if path.is_file()), key=Path.as_posix)
        if not files:
            raise DataMissing(
                "no file matches",
                where=f"{what}: {pattern}",
                expected="at least one file",
                found="none",
                cure="a glob is read from the folder in which you run; ** reaches into folders",
            )
        for path in files:
            if not path.name.endswith(kinds):
                raise DataError(
                    "unknown kind of file",
                    where=str(path),
                    expected=" or ".join(kinds),
                    found=path.suffix or path.name,
                    cure="narrow the glob, or convert the file",
                )
            if path.resolve() not in found:
                name = _encodable(path.relative_to(base).as_posix())
                name = f"{number}:{name}" if name in names else name
                names.add(name)
                found[path.resolve()] = SourceFile(path, name)
    return list(found.values())


def _encodable(name: str) -> str:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(
            "name of a file is not UTF-8",
            where=repr(name),
            expected="a name that can be written down",
            found="other bytes",
            cure="rename the file",
        ) from None
    return name


def _base(pattern: str) -> Path:
    """The folder before the first wildcard."""
    parts = Path(pattern).parts
    fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts) - 1)
    return Path(*parts[:fixed])


def read_file(
    file: SourceFile,
    source: str,
    *,
    text_field: str,
    split: Split,
    paragraphs_per_document: int,
    expected_digest: str,
    chat: Written | None = None,
    by_difference: bool = False,
    skipped: Skipped | None = None,
    preferences: bool = False,
    marked: Marked | None = None,
) -> Iterator[Document]:
    """The documents of one file, hashed as they are read. ``chat``: its lines are conversations, written so, and
    ``by_difference`` as their documents say; an unknown one is ``skipped``, or an error where nothing may be.
    ``preferences``: a line has two, and gives two documents. ``marked`` counts those whose messages hold special tokens.

    Raises:
        DataError: the bytes are not text, not JSON, not gzip, or not those that ``expected_digest`` was made from.
    """
    with file.path.open("rb") as raw:
        hashing = _Hashing(raw)
        if file.path.name.endswith(_TEXT) and chat is not None:
            raise DataError(
                "not a chat document",
                where=str(file.path),
                expected="JSON lines with 'messages'",
                found="plain text",
                cure="leave dataset.chat out for plain text",
            )
        if file.path.name.endswith(_TEXT):
            texts = split_text(lines(hashing, where=str(file.path)), split, paragraphs_per_document)
            for number, text in enumerate(texts):
                yield Document(text, source, {"file": file.name, "number": number})
        else:
            stream = _unpacked(hashing, file.path) if file.path.name.endswith(SUFFIXES) else hashing
            yield from (
                _chat_documents(stream, file, source, chat, by_difference, skipped, marked, preferences=preferences)
                if chat is not None
                else _json_documents(stream, file, source, text_field)
            )
        found = hashing.finish()
    if found != expected_digest:
        raise DataError(
            "data file changed while it was read",
            where=str(file.path),
            expected=expected_digest,
            found=found,
            cure="leave the data alone while the stage runs, and run it again",
        )


class _Hashing(io.RawIOBase):
    """A file that hashes what is read from it."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._hasher = hashlib.sha256()
        self.size = 0
        """Bytes read so far."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        count = self._file.readinto(buffer)
        self._hasher.update(memoryview(buffer)[:count])
        self.size += count
        return count

    def readline(self, size: int | None = -1) -> bytes:
        line = self._file.readline(-1 if size is None else size)
        self._hasher.update(line)
        return line

    def finish(self) -> str:
        """Read what is left, and give the digest of the whole."""
        while block := self._file.read(1 << 20):
            self._hasher.update(block)
        return "sha256:" + self._hasher.hexdigest()


def _unpacked(packed: _Hashing, path: Path) -> Iterator[bytes]:
    """The lines of a packed file, as long as it is not a bomb: text shrinks to a tenth, zeros to a thousandth."""
    stream = unpacked(cast(BinaryIO, io.BufferedReader(packed)), path.name)
    size = 0
    while line := stream.readline(MOST_LINE + 1):
        size += len(line)
        most = MOST_LINE + MOST_RATIO * packed.size
        if len(line) > MOST_LINE or size > most:
            raise DataError(
                "compressed file unpacks to too much",
                where=str(path),
                expected=f"lines of at most {MOST_LINE} bytes, and at most {most} bytes of {packed.size} packed ones",
                found="a longer line" if len(line) > MOST_LINE else "more",
                cure="unpack it, look at it, and name the .jsonl",
            )
        yield line


def json_objects(file: Iterable[bytes], where: str) -> Iterator[tuple[int, dict[str, object]]]:
    """The objects of a JSON-lines file with their line numbers; empty lines are passed over.

    Raises:
        DataError: a line is not UTF-8 or not a JSON object; the message names file and line.
    """
    start = 0
    for number, line in enumerate(_readable(file, where), start=1):
        at = f"{where}:{number}"
        begin, start = start, start + len(line)
        line = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
        if not line.strip():
            continue
        try:
            value = parsed(line)
        except UnicodeDecodeError:
            decode_line(line, start=begin, where=at)
            raise
        except (ValueError, RecursionError) as error:
            raise DataError(
                "line is not JSON",
                where=at,
                expected="one JSON object per line",
                found=str(error),
                cure="correct or remove the line",
            ) from None
        if not isinstance(value, dict):
            raise DataError(
                "line is not a JSON object",
                where=at,
                expected="an object",
                found=type(value).__name__,
                cure="correct or remove the line",
            )
        yield number, value


def _readable(file: Iterable[bytes], where: str) -> Iterator[bytes]:
    try:
        with reading():
            yield from file
    except Damaged as error:
        raise DataError(
            "compressed file is damaged",
            where=where,
            expected="all of a packed file",
            found=str(error),
            cure="fetch or compress it again",
        ) from None


def text_of(value: dict[str, object], field: str, where: str) -> str:
    """The string in ``field`` that can be written as UTF-8 (``a.b``: in ``b`` of ``a``).

    Raises:
        DataError: it is missing, no string, or holds half of a surrogate pair.
    """
    try:
        text, found = field_of(value, field), ""
    except KeyError:
        text, found = None, "no such field"
    if not isinstance(text, str):
        found = found or type(text).__name__
        raise DataError(
            "document has no text",
            where=where,
            expected=f"a string in the field {field!r}",
            found=found,
            cure="name the field with dataset.text_field, or correct the line",
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            "text is not Unicode",
            where=f"{where}: character {error.start}",
            expected="characters",
            found=f"a lone surrogate {text[error.start]!r}",
            cure="correct or remove the line",
        ) from None
    return text


def _json_documents(stream: Iterable[bytes], file: SourceFile, source: str, field: str) -> Iterator[Document]:
    for number, value in json_objects(stream, str(file.path)):
        text = text_of(value, field, f"{file.path}:{number}")
        if text.strip():
            yield Document(text, source, {"file": file.name, "line": number})


def _chat_documents(
    stream: Iterable[bytes],
    file: SourceFile,
    source: str,
    chat: Written,
    by_difference: bool,
    skipped: Skipped | None,
    marked: Marked | None,
    *,
    preferences: bool,
) -> Iterator[Document]:
    for number, value in json_objects(stream, str(file.path)):
        at = f"{file.path}:{number}"
        try:
            written = _preference(value, at, chat) if preferences else [({}, *chat(value, at))]
        except NoConversation as error:
            if skipped is None:
                raise
            skipped.add(file, number, error)
            continue
        if marked is not None:
            marked.look_at([value.get(name) for name in ("messages", "conversations", "prompt", CHOSEN, REJECTED)])
        for told, text, learned in written:
            metadata: dict[str, str | int] = {"file": file.name, "line": number, **told}
            yield Document(text, source, metadata, learned, by_difference=by_difference)


def _preference(value: dict[str, object], at: str, chat: Written) -> list[tuple[dict[str, str], str, tuple[Span, ...]]]:
    """Both conversations of a line, the chosen one first. A conversation that the line has beside them is neither."""
    beside = {name: item for name, item in value.items() if name != "conversations"}
    return [
        ({ANSWER: answer}, *chat(beside | {"messages": messages}, f"{at}, {answer}"))
        for answer, messages in zip((CHOSEN, REJECTED), conversations(value, at), strict=True)
    ]


def read_pairs(files: Iterable[SourceFile]) -> Iterator[dict[str, str]]:
    """Minimal pairs in BLiMP's shape from the user's files.

    Raises:
        DataError: a line is not a pair, or its two sentences are the same.
    """
    for file in files:
        with file.path.open("rb") as stream:
            for number, value in json_objects(stream, str(file.path)):
                at = f"{file.path}:{number}"
                good, bad = (text_of(value, name, at) for name in ("sentence_good", "sentence_bad"))
                if good == bad:
                    raise DataError(
                        "minimal pair with equal sentences",
                        where=at,
                        expected="two different sentences",
                        found=repr(good),
                        cure="correct or remove the line",
                    )
                yield {
                    "sentence_good": good,
                    "sentence_bad": bad,
                    "UID": str(value.get("UID", file.name.removesuffix(".jsonl"))),
                    "pairID": str(value.get("pairID", number)),
                }
