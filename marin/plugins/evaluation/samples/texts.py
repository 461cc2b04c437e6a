"""What states said, for people to read: in `marin show`, `marin watch` and MLflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import NamedTuple

from ledger import LedgerError, Store
from marin.history.runs import History
from marin.history.table.evaluations import recorded_evaluations
from marin.kinds.families.measured import EvaluationRecorded
from marin.plugins.evaluation.recorded.records import Sample, decoded_samples
from marin.plugins.evaluation.samples.task import NAME, VERSION
from marin.process.text import visible
from marin.record.root import Root

LONGEST = 8 * 2**20
"""Bytes of one record of samples that are read to be shown."""


class SampledText(NamedTuple):
    """Before which train step a state said ``text`` after ``prompt``."""

    step: int
    prompt: str
    text: str


def sampled_texts(
    root: Root, run: str, read: MutableMapping[str, list[SampledText]] | None = None
) -> list[SampledText]:
    """What states of ``run`` said, in the order in which it was recorded: as its events say it, and nothing of it is proven. A
    record that is not in the store, or is malformed, is left out: `marin verify` says so. ``read``: records by their
    digest, which are not read again; those that are read are added."""
    return list(_texts(root.history(), root.store_to_read(), run, {} if read is None else read))


def _texts(
    history: History, store: Store, run: str, read: MutableMapping[str, list[SampledText]]
) -> Iterator[SampledText]:
    for body in recorded_evaluations(history, run):
        if not isinstance(body, EvaluationRecorded) or body.harness != VERSION:
            continue
        if (known := read.get(body.samples)) is not None:
            yield from (text._replace(step=body.step) for text in known)
            continue
        try:
            with store.open_file(body.samples, f"samples/{NAME}.jsonl") as file:
                data = file.read(LONGEST + 1)
            samples = list(decoded_samples(data, f"event of train step {body.step}")) if len(data) <= LONGEST else []
        except LedgerError:
            continue
        read[body.samples] = [SampledText(body.step, prompt, text) for prompt, text in _pairs(samples)]
        yield from read[body.samples]


def texts_of(samples: Mapping[str, Sequence[Sample]]) -> list[str]:
    """A line for each prompt with what was said after it."""
    return [visible(f"{prompt}|{text}") for found in samples.values() for prompt, text in _pairs(found)]


def _pairs(samples: Sequence[Sample]) -> Iterator[tuple[str, str]]:
    for sample in samples:
        for request in sample.requests:
            yield str(next(iter(request.arguments), "")), request.text
