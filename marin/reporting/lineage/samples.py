"""What the data of a run looks like: first documents, the same text cut into tokens, and the very documents of a train
step.

Everything is read from the store and verified on the way. Where the bytes are not here, the sample says so. Which
sequences a train step saw is found from recipe and token cache by the training's own code, in a process of its own
because that takes jax; the digest of the batch is compared with the one that training recorded.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ledger import LedgerError, Store
from marin.data.documents import PARTS
from marin.data.tokenizer import parse_tokenizer
from marin.history.run import Run
from marin.record.outputs import bytes_of, checkout
from marin.reporting.runs.order import batches

DOCUMENTS, DOCUMENTS_OF_A_PART, LETTERS, TOKENIZED = 5, 2, 600, 2
SEQUENCES_SHOWN, INSPECTION_SECONDS = 4, 120


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


def read_samples(run: Run, store: Store, *, steps: Sequence[int] | None = None) -> Samples:
    """Documents and tokens from verified bytes, and what these train steps saw (by default the first and the last; none
    for an empty list)."""
    try:
        found = list(_documents(run, store))
    except LedgerError as error:
        return Samples(missing=str(error))
    documents, parts = [text for _, text in found], [part for part, _ in found]
    try:
        tokenizer = _tokenizer(run, store)
        samples = Samples(documents, _tokenized(tokenizer, documents[:TOKENIZED]), parts=parts)
    except (LedgerError, ValueError) as error:
        return Samples(documents, missing=str(error), parts=parts)
    known = dict(batches(run))
    chosen = sorted({min(known), max(known)} if steps is None and known else set(steps or ()) & known.keys())
    if not chosen or tokenizer is None:
        return samples
    try:
        return replace(samples, batches=_inspected(run, store, tokenizer, known, chosen))
    except (LedgerError, OSError, ValueError, subprocess.SubprocessError) as error:
        return replace(samples, batches_missing=str(error)[:500])


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
                yield part, _text(line)


def _text(line: bytes) -> str:
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
        return parse_tokenizer(stream.read(), where=f"output of step tokenizer, {bytes_of(made.output)}")


def _tokenized(tokenizer: Any, documents: Sequence[str]) -> list[list[str]]:
    """Each document as the pieces of text that its tokens stand for."""
    if tokenizer is None:
        return []
    return [
        [document[start:end] for start, end in tokenizer.encode(document, add_special_tokens=False).offsets]
        for document in documents
    ]


def _inspected(run: Run, store: Store, tokenizer: Any, known: dict[int, str], steps: list[int]) -> list[InspectedBatch]:
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
        request = {"recipe": run.started.body.recipe, "cache": str(Path(folder) / "tokens" / "train"), "steps": steps}
        done = subprocess.run(
            [sys.executable, "-m", "marin.training.tokens.inspection"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=INSPECTION_SECONDS,
            check=False,
        )
    if done.returncode:
        raise ValueError(
            f"the batches could not be found again: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
        )
    found = json.loads(done.stdout)
    texts = (
        {}
        if corpus is None
        else _texts(
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


def _texts(store: Store, artifact: str, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """The beginnings of documents of the train split, by part and number; without a mixture the part is ""."""
    found: dict[tuple[str, int], str] = {}
    for part, path in _splits(store, artifact).items():
        numbers = {number for named, number in wanted if part in ("", named)}
        if numbers:
            with store.open_file(artifact, path) as stream:
                for number, line in zip(range(max(numbers) + 1), stream, strict=False):
                    if number in numbers:
                        found[part, number] = _text(line)
    return found
