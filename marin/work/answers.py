"""What this machine answered once, kept in the user's cache under all that decides it: its processor, the installed versions and
the files of ours that compute it. An answer is the digest that came out; the caller knows which one is right."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ledger import canonical_bytes, digest_bytes
from marin.process.cache import own_folder
from marin.provenance import environment
from marin.provenance.code import code_folder, files_digest
from marin.provenance.processor import processor
from marin.work.code import code_of


@dataclass(frozen=True)
class Answer:
    """One that is kept, or will be."""

    file: Path

    @property
    def digest(self) -> str:
        """What came out; empty where nothing is kept, or what is kept is not a digest."""
        try:
            text = self.file.read_text("ascii")
        except (OSError, ValueError):
            return ""
        return text if re.fullmatch(r"sha256:[0-9a-f]{64}", text) else ""

    def keep(self, digest: str) -> None:
        """For this machine, these versions and this code, until one of them is another; where the cache cannot be written, it
        is computed again the next time."""
        written = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        with suppress(OSError):
            written.write_text(digest, encoding="ascii")
            written.replace(self.file)


def answer(start: str) -> Answer:
    """Of what the file ``start`` computes.

    Raises:
        Refused: others could write the user's cache.
    """
    cpu, code = processor(), files_digest(code_folder(), code_of((start,)))
    about = {
        "features": list(cpu.features),
        "model": cpu.model,
        "numbers": list(cpu.numbers),  # a virtual machine may hide the model in words, and compilers go by these
        "versions": environment.versions(),
        "code": code,
    }
    return Answer(own_folder("answers") / digest_bytes(canonical_bytes(about)).removeprefix("sha256:"))
