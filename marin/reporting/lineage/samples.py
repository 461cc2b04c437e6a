"""What the data of a run looks like: first documents, the same text cut into tokens, and the very documents of a train
step.

Everything is read from the store and verified on the way. Where the bytes are not here, the sample says so. Which
sequences a train step saw is found from recipe and token cache by the training's own code, in a process of its own
(:class:`Inspector`) because that takes jax; the digest of the batch is compared with the one that training recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from ledger import LedgerError, NotFound, Store
from marin.data.borrowed import trial
from marin.data.documents import PARTS
from marin.data.tokenizer import MOST_BYTES, parse_tokenizer
from marin.history.run import Run
from marin.record.outputs import bytes_of, checkout
from marin.reporting.runs.order import batches

DOCUMENTS, DOCUMENTS_OF_A_PART, LETTERS, TOKENIZED = 5, 2, 600, 2
SEQUENCES_SHOWN = 4
INSPECTION_SECONDS = 1200
"""By the clock, for one answer: a bound for what hangs. A page that is drawn without it is not evidence."""


@dataclass(frozen=True)
class InspectedSequence:
    """A sequence of a batch: its number in the token stream, its tokens as pieces of text, the numbers of the first and
    the last document that it lies in, the beginnings of these documents, and in a mixture the part that all this is
    of."""

    index: int
    pieces: Sequence[str]
    first: int
    last: int
    documents: Sequence[str] = ()
    part: str = ""


@dataclass(frozen=True)
class InspectedBatch:
    """What one train step saw: the batch's digest as training recorded it and as it was found again."""

    step: int
    recorded: str
    found: str
    sequences: Sequence[InspectedSequence]
    batch_size: int


@dataclass(frozen=True)
class Samples:
    """What is shown of the data; ``missing`` says why there is none, ``batches_missing`` why there are no train steps. In
    a mixture, ``parts`` names the part of each document."""

    documents: Sequence[str] = ()
    tokens: Sequence[Sequence[str]] = ()
    missing: str = ""
    batches: Sequence[InspectedBatch] = ()
    batches_missing: str = ""
    parts: Sequence[str] = ()


class Inspector(AbstractContextManager["Inspector"]):
    """A process that finds again what train steps saw, started with the first question, or before, and ended with this context:
    it takes jax, whose import is most of what one answer costs."""

    COMMAND = (sys.executable, "-m", "marin.training.inspection.answers")

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self.silent = False
        """Whether a question since this was set had no answer at all: another time it may have one."""

    def stop(self) -> None:
        """Answer nobody any more, from whatever thread; who waits for an answer waits no longer."""
        self._stopped = True
        if (process := self._process) is not None:
            process.kill()

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def begin(self) -> subprocess.Popen[bytes]:
        """The process, which imports what it needs while nobody waits for it."""
        if self._process is None:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(self.COMMAND, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        return self._process

    def ask(self, recipe: object, cache: Path, steps: Sequence[int]) -> list[dict[str, Any]]:
        """What the ``steps`` of a run with this recipe saw, whose train split's token cache lies in ``cache``, as
        :mod:`marin.training.inspection.answers` says it.

        Raises:
            ValueError: they could not be found, for the reason that it says.
            CancelledError: :meth:`stop` was called. No page is drawn without an answer then.
        """
        process = self.begin()
        if self._stopped:  # looked at when there is a process: one that stops it now finds it
            self.__exit__()
            raise CancelledError
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(json.dumps({"recipe": recipe, "cache": str(cache), "steps": [*steps]}).encode() + b"\n")
            stdin.flush()
            answer = json.loads(_line(stdout.fileno(), INSPECTION_SECONDS))
        except (OSError, ValueError) as error:
            self.__exit__()
            self.silent = True
            if self._stopped:
                raise CancelledError from None
            raise ValueError(f"the batches could not be found again: {error}") from None
        if "found" not in answer:
            raise ValueError(f"the batches could not be found again: {answer.get('refused', 'no reason given')}")
        return list(answer["found"])


def _line(descriptor: int, seconds: float) -> bytes:
    """The line that somebody answers, who has nothing to say after it.

    Raises:
        ValueError: there is none within this time, or the other end is gone.
    """
    found, until = b"", time.monotonic() + seconds
    while not found.endswith(b"\n"):
        if not wait([descriptor], max(0.0, until - time.monotonic())):  # select refuses numbers from 1,024 on
            raise ValueError(f"no answer in {seconds:.0f} s")
        part = os.read(descriptor, 1 << 16)
        if not part:
            raise ValueError("no answer, and the process is gone")
        found += part
    return found


def read_samples(
    run: Run, store: Store, *, steps: Sequence[int] | None = None, inspector: Inspector | None = None
) -> Samples:
    """Documents and tokens from verified bytes, and what these train steps saw (by default the first and the last; none
    for an empty list). ``inspector``: who finds that; one for this question alone, where none is given."""
    try:
        found = list(_documents(run, store))
    except LedgerError as error:
        return Samples(missing=_reason(error))
    documents, parts = [text for _, text in found], [part for part, _ in found]
    try:
        tokenizer = _tokenizer(run, store)
        samples = Samples(documents, _tokenized(tokenizer, documents[:TOKENIZED]), parts=parts)
    except (LedgerError, ValueError) as error:
        return Samples(documents, missing=_reason(error), parts=parts)
    known = dict(batches(run))
    chosen = sorted({min(known), max(known)} if steps is None and known else set(steps or ()) & known.keys())
    if not chosen or tokenizer is None:
        return samples
    try:
        with nullcontext(inspector) if inspector is not None else Inspector() as asked:
            return replace(samples, batches=_inspected(run, store, tokenizer, known, chosen, asked))
    except (LedgerError, OSError, ValueError) as error:
        return replace(samples, batches_missing=_reason(error)[:500])


def _reason(error: Exception) -> str:
    """Why something is not shown, in the same words wherever it was looked for: a page is drawn again elsewhere."""
    if isinstance(error, NotFound):
        return "it is not in this store"
    return error.what if isinstance(error, LedgerError) else str(error)


def _splits(store: Store, artifact: str) -> dict[str, str]:
    """The files of a corpus that training reads, by the part of a mixture that each is; "" is the only one."""
    names = [entry.path for entry in store.manifest(artifact)]
    parts = {
        name.removeprefix(f"{PARTS}/").removesuffix(".jsonl"): name for name in names if name.startswith(f"{PARTS}/")
    }
    return parts or {"": "train.jsonl"}


def _documents(run: Run, store: Store) -> Iterator[tuple[str, str]]:
    """The first documents, of each part of a mixture, with the part."""
    corpus = run.steps.get("corpus")
    if corpus is None:
        return
    splits = _splits(store, bytes_of(corpus.output))
    for part, path in splits.items():
        with store.open_file(bytes_of(corpus.output), path) as stream:
            for _, line in zip(range(DOCUMENTS if len(splits) == 1 else DOCUMENTS_OF_A_PART), stream, strict=False):
                yield part, _line_text(line)


def _line_text(line: bytes) -> str:
    try:
        document = json.loads(line)
    except ValueError:
        document = None
    found = document.get("text") if isinstance(document, dict) else None
    return found[:LETTERS] if isinstance(found, str) else "(not a document)"


def _tokenizer(run: Run, store: Store) -> Any:
    made = run.steps.get("tokenizer")
    if made is None:
        return None
    with store.open_file(bytes_of(made.output), "tokenizer.json") as stream:
        before = _as_recorded(run)
        where = f"output of step tokenizer, {bytes_of(made.output)}"
        data = stream.read(MOST_BYTES + 1)
    trial.check(data, where=where)
    found = parse_tokenizer(data, where=where, as_recorded=before)
    found.encode_special_tokens = before
    return found


def _as_recorded(run: Run) -> bool:
    """As :func:`marin.recipe.schema.as_recorded`, of a recipe too that this version cannot read: texts are shown all the same."""
    said = run.started.body.recipe.get("tokenizer")
    return not isinstance(said, Mapping) or said.get("reading") is None


def _tokenized(tokenizer: Any, documents: Sequence[str]) -> list[list[str]]:
    """Each document as the pieces of text that its tokens stand for."""
    if tokenizer is None:
        return []
    return [
        [document[start:end] for start, end in tokenizer.encode(document, add_special_tokens=False).offsets]
        for document in documents
    ]


def _inspected(
    run: Run, store: Store, tokenizer: Any, known: dict[int, str], steps: list[int], inspector: Inspector
) -> list[InspectedBatch]:
    tokens, corpus = run.steps.get("tokens"), run.steps.get("corpus")
    if tokens is None:
        return []
    if not any(
        entry.path.startswith("train/") and entry.path.endswith("shard_ledger.json")
        for entry in store.manifest(bytes_of(tokens.output))
    ):
        raise ValueError("the token cache of the run cannot be read here")
    with tempfile.TemporaryDirectory(prefix="marin-batches-") as folder:
        checkout(store, tokens.output, Path(folder) / "tokens", kind="tokens")
        found = inspector.ask(run.started.body.recipe, Path(folder) / "tokens" / "train", steps)
    texts = (
        {}
        if corpus is None
        else beginnings_of(
            store,
            bytes_of(corpus.output),
            {
                (sequence["part"], number)
                for step in found
                for sequence in step["sequences"][:SEQUENCES_SHOWN]
                for number in range(sequence["documents"][0], sequence["documents"][1] + 1)
            },
        )
    )
    return [
        InspectedBatch(
            step["step"],
            known[step["step"]],
            step["digest"],
            [_sequence(sequence, tokenizer, texts) for sequence in step["sequences"][:SEQUENCES_SHOWN]],
            len(step["sequences"]),
        )
        for step in found
    ]


def _sequence(found: dict[str, Any], tokenizer: Any, texts: dict[tuple[str, int], str]) -> InspectedSequence:
    first, last = found["documents"]
    part = found["part"] if any(named == found["part"] for named, _ in texts) else ""
    pieces = [tokenizer.decode([token], skip_special_tokens=False) if token >= 0 else "" for token in found["tokens"]]
    return InspectedSequence(
        found["index"],
        pieces,
        first,
        last,
        [texts[part, number] for number in range(first, last + 1) if (part, number) in texts],
        part,
    )


def beginnings_of(store: Store, artifact: str, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """The beginnings of documents of the train split, by part and number; without a mixture the part is ""."""
    found: dict[tuple[str, int], str] = {}
    for part, path in _splits(store, artifact).items():
        numbers = {number for named, number in wanted if part in ("", named)}
        if numbers:
            with store.open_file(artifact, path) as stream:
                for number, line in zip(range(max(numbers) + 1), stream, strict=False):
                    if number in numbers:
                        found[part, number] = _line_text(line)
    return found
