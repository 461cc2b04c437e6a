"""A split of a corpus is written: one document a line, as JSON."""

from __future__ import annotations

import hashlib
import json
from typing import BinaryIO

from marin.data.documents import Document, SplitCount


class SplitWriter:
    """Writes the documents of one split to a file that does not exist yet."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._copies: dict[bytes, int] = {}
        self._text_bytes = 0
        self._documents = 0

    def write(self, document: Document) -> None:
        """Append one document."""
        encoded = document.text.encode("utf-8")
        digest = hashlib.sha256(encoded)
        key = digest.digest()
        copy = self._copies[key] = self._copies.get(key, 0) + 1
        record: dict[str, object] = {
            "id": digest.hexdigest() + (f"-{copy}" if copy > 1 else ""),
            "metadata": dict(document.metadata),
            "source": document.source,
            "text": document.text,
        } | ({} if document.learned is None else {"learned": [list(span) for span in document.learned]})
        record |= {"by_difference": True} if document.by_difference else {}
        line = json.dumps(record, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        self._file.write(line.encode("utf-8") + b"\n")
        self._documents += 1
        self._text_bytes += len(encoded)

    def count(self) -> SplitCount:
        """What was written so far."""
        return SplitCount(self._documents, self._text_bytes)
