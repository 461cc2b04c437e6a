"""A tokenizer's folder as transformers reads it, in a process of its own: what its classes make of vocabularies, merges and
settings is their code, and nothing here says it again.

    python -m marin.data.borrowed.reference FOLDER ANSWER

``AutoTokenizer`` decides the class, and its backend is the answer: one tokenizer of the library ``tokenizers``, with the special
tokens that it has. No program of the folder is executed (``trust_remote_code`` is off) and no network asked. A folder that ends
this process is an answer too. Where a class does more to a text than its backend does, that is found by trying, and refused.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from marin.data.tokenizer import CONFIG, FILE, SPECIAL_MAP, cleaned
from marin.errors import UsageError

SECONDS = 1800
"""How long reading a folder may take, by the clock: on a machine with much else to do minutes are usual."""
SETTINGS = (CONFIG, SPECIAL_MAP, "added_tokens.json", "config.json")
"""Files beside a vocabulary."""
TRIED = (
    "The river bends, and the old mill's wheel doesn't turn.",
    "  two  spaces\n\nand a\ttab ",
    "Åse's café naïve — 東京 12,345 ﬁve e\u0301 😀",
    "def f(x):\n    return x != 3  # ok",
    "",
)
"""Texts of which the class and its backend have to make the same."""


class Read(msgspec.Struct, frozen=True):
    """What transformers made of a folder. ``tokenizer``: the content of ``tokenizer.json``, ``size``: how many tokens it has;
    ``named``: special tokens by name;
    ``cleans``: whether decoding removes spaces before punctuation; ``splits``: special tokens in a text are text;
    ``notes``: what the library warned of."""

    tokenizer: str
    size: int
    named: dict[str, str]
    extra: list[str]
    cleans: bool
    forced: bool
    splits: bool
    notes: list[str]


def read(folder: Path, *, where: str) -> Read:
    """What transformers makes of the tokenizer in ``folder``.

    Raises:
        UsageError: it makes nothing of it, or what is not a tokenizer of the library ``tokenizers``.
    """
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with TemporaryDirectory(prefix="marin-tokenizer-") as base:
        path = Path(base) / "answer.json"
        command = [sys.executable, "-m", __name__, str(folder), str(path)]
        try:
            ended = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
            )
            found = f"its process ended with status {ended.returncode}"
        except subprocess.TimeoutExpired:
            found = f"no end after {SECONDS} s"
        answer = msgspec.json.decode(path.read_bytes()) if path.is_file() else {"refused": found}
    return read_of(answer, where)


def read_of(answer: Mapping[str, Any], where: str) -> Read:
    """What an answer of that process says.

    Raises:
        UsageError: it is a refusal.
    """
    if "read" in answer:
        return msgspec.convert(answer["read"], Read)
    raise UsageError(
        "a tokenizer that transformers does not read",
        where=where,
        expected="a folder that AutoTokenizer opens as a tokenizer of the library tokenizers, without programs",
        found=str(answer.get("refused"))[:300],
        cure="save it as tokenizer.json: AutoTokenizer.from_pretrained(...).save_pretrained(FOLDER)",
    )


class _Notes(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(" ".join(record.getMessage().split())[:300])


def answer_of(folder: Path) -> dict[str, Any]:
    """In the process of its own: the answer as JSON has it."""
    try:
        return _tokenizer_parts(folder)
    except BaseException as error:  # a folder from elsewhere, and the library's panics are not Exception
        return {"refused": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


def _tokenizer_parts(folder: Path) -> dict[str, Any]:
    import transformers
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    notes = _Notes()
    transformers.utils.logging.disable_default_handler()
    transformers.utils.logging.add_handler(notes)
    found = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    kind = type(found).__name__
    if not isinstance(found, PreTrainedTokenizerFast):
        return {"refused": f"{kind}, which is not of the library tokenizers"}
    backend = found.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    content = backend.to_str(pretty=True)
    if _is_of_settings_alone(folder, content):
        return {"refused": f"{kind}, which finds no vocabulary in the folder and makes one of special tokens"}
    bpe = type(backend.model).__name__ == "BPE"
    forced = bool(found.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output)
    cleans = bool(found.clean_up_tokenization_spaces) and (forced or not bpe)
    alone = Tokenizer.from_str(
        content
    )  # what is kept: a class may have put methods of its own in place of the backend's
    alone.encode_special_tokens = bool(found.split_special_tokens)
    for text in TRIED:
        ids = alone.encode(text, add_special_tokens=False).ids
        said = alone.decode(ids, skip_special_tokens=False)
        if found.encode(text, add_special_tokens=False) != ids or found.decode(ids) != (
            cleaned(said) if cleans else said
        ):
            return {"refused": f"{kind}, which does more to a text than its tokenizer: {text[:40]!r}"}
    read = Read(
        tokenizer=content,
        size=len(found),
        named=dict(found.special_tokens_map),
        extra=[str(one) for one in found.extra_special_tokens],
        cleans=bool(found.clean_up_tokenization_spaces),
        forced=forced,
        splits=bool(found.split_special_tokens),
        notes=list(dict.fromkeys(notes.lines)),
    )
    return {"read": msgspec.to_builtins(read)}


def _is_of_settings_alone(folder: Path, content: str) -> bool:
    """Whether transformers makes the same without the files that may hold a vocabulary: its class knows none of them."""
    from transformers import AutoTokenizer

    if (folder / FILE).is_file():
        return False
    with TemporaryDirectory(prefix="marin-tokenizer-") as base:
        for name in SETTINGS:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, Path(base) / name)
        try:
            made = AutoTokenizer.from_pretrained(base, trust_remote_code=False, local_files_only=True).backend_tokenizer
            made.no_truncation()
            made.no_padding()
            return bool(made.to_str(pretty=True) == content)
        except BaseException:  # it cannot do without them
            return False


def main(folder: Path, path: Path) -> None:
    """Write the answer to ``path``."""
    whole = path.with_suffix(".part")
    whole.write_bytes(msgspec.json.encode(answer_of(folder)))
    whole.rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
