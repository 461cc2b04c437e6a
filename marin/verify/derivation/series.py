"""What was measured of train steps and a replay measures again, as it is recorded of the training that stands. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from marin.record.events import OF_TRAINING, MetricsRecorded
from marin.verify.derivation.attempts import superseded
from marin.verify.derivation.record import RunRecord, facts

Measured = Mapping[str, Mapping[int, str]]
"""Series -> train step -> value, in hex as it is recorded."""


def recorded_series(record: RunRecord) -> Measured:
    """All that is recorded of them."""
    found: dict[str, dict[int, str]] = {}
    for stretch in record.stretches:
        gone = superseded(record.run, stretch)
        for fact in facts(stretch, MetricsRecorded):
            for series in fact.body.series if fact.index not in gone else ():
                if series.key in OF_TRAINING and len(series.steps) == len(series.values):
                    found.setdefault(series.key, {}).update(zip(series.steps, series.values, strict=True))
    return found


def series_between(measured: Measured, start: int, end: int) -> dict[str, dict[int, str]]:
    """What of it is about train steps ``[start, end)``."""
    found = {name: {at: value for at, value in known.items() if start <= at < end} for name, known in measured.items()}
    return {name: known for name, known in found.items() if known}
