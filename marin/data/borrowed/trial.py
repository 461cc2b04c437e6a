"""A tokenizer from elsewhere is opened in a process of its own first, by those who judge what others recorded.

    python -m marin.data.borrowed.trial FILE

:mod:`marin.data.tokenizer` refuses what the library is known to end a process by. What nobody knows yet would take a
verifier's verdicts with it. So a process of a bounded size opens the file, encodes texts of many kinds and each token's own, and
decodes them; how it ends is the answer. It is bounded by a processor's time, so that a busy machine answers the same; what this
machine does to it says nothing of the file. Tokenizers of the form that is trained here need no trial.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger import Unavailable
from marin.data.tokenizer import END_OF_TEXT, parse_tokenizer, switched_on
from marin.errors import DataError

SECONDS = 120
"""Of a processor."""
CLOCK_SECONDS = 3600
"""When it is given up by the clock."""
_ENDED_BY_OTHERS = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
MOST_MEMORY = 16 << 30
"""Bytes of address space; threads take some of them for nothing."""
TEXTS = (
    "The river bends, and the old mill's wheel doesn't turn.",
    "  two  spaces\r\n\nand a\ttab \x00 \u200d\ufeff",
    "A\u030ase's cafe\u0301 \u6771\u4eac 12,345 \U0001f600 \u0416 \u05d0 \ufb01",
    END_OF_TEXT,
    "",
    "a" * 10_000,
    "word " * 2_000,
)
_OWN = {
    "truncation": None,
    "padding": None,
    "normalizer": None,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "post_processor": None,
    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
}


def check(data: bytes, *, where: str) -> None:
    """Refuse a ``tokenizer.json`` that ends the process which opens it.

    Raises:
        DataError: it does, or is not a tokenizer.
        Unavailable: this machine did not let it come to an end.
    """
    switched_on(data, where=where, as_recorded=True)
    if not is_of_our_form(data) and (found := _ended(data)):
        raise DataError(
            "a tokenizer that cannot be opened",
            where=where,
            expected="a process that opens it and encodes texts to end by itself",
            found=found,
            cure="the library tokenizers ends by this file: nothing can be said of what was made with it",
        )


def is_of_our_form(data: bytes) -> bool:
    """Whether it has the form of those that are trained here: a byte-level BPE and nothing else."""
    found = json.loads(data)
    parts = {name: found.get(name) for name in _OWN}
    model = found["model"]
    return parts == _OWN and model.get("type") == "BPE" and not model.get("continuing_subword_prefix")


@lru_cache(maxsize=16)
def _ended(data: bytes) -> str:
    """How the process ended that opened it; "" where it ended by itself."""
    with TemporaryDirectory(prefix="marin-tokenizer-") as base:
        path = Path(base) / "tokenizer.json"
        path.write_bytes(data)
        environment = os.environ | {"TOKENIZERS_PARALLELISM": "false"}
        try:
            ended = subprocess.run(
                [sys.executable, "-m", __name__, str(path)],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=CLOCK_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _unsaid(f"no end after {CLOCK_SECONDS} s by the clock") from None
    status, short = ended.returncode, _seconds() < SECONDS
    if status in _ENDED_BY_OTHERS or (short and status == -signal.SIGXCPU):
        raise _unsaid(f"status {status}")
    return (
        f"no end after {SECONDS} s of a processor"
        if status == -signal.SIGXCPU
        else f"status {status}"
        if status
        else ""
    )


def _unsaid(found: str) -> Unavailable:
    cure = "try again on a machine with less to do and more memory: nothing is said of the tokenizer"
    return Unavailable("whether a tokenizer can be opened is not known", found=found, cure=cure)


def _seconds() -> int:
    """A processor's time that the process may take: :data:`SECONDS`, or what this one may take, if that is less."""
    limits = resource.getrlimit(resource.RLIMIT_CPU)
    return min(SECONDS, *(limit for limit in limits if limit != resource.RLIM_INFINITY), SECONDS)


def bound() -> None:
    """Let this process have no more memory and no more of a processor's time than a trial may take."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_seconds(), resource.getrlimit(resource.RLIMIT_CPU)[1]))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def main(path: Path) -> None:
    """Open the tokenizer, and use it. A refusal is an end too: anyone who opens it in earnest is refused alike."""
    bound()
    try:
        tokenizer = parse_tokenizer(path.read_bytes(), where=path.name, as_recorded=True)
        tokens = sorted(tokenizer.get_vocab())
        for around in (False, True):
            for encoding in tokenizer.encode_batch([*TEXTS, *tokens], add_special_tokens=around):
                tokenizer.decode(encoding.ids[:1_000])
        tokenizer.decode(list(range(min(len(tokens), 1_000))))
    except DataError:
        return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
