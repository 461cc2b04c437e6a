"""Reference convergence points: how much data a benchmark needs to its target, at each batch size, over many seeds.

A point of MLPerf is the list of what every seed needed at one batch size. Its checker takes the mean without the first and
the last ("olympic") and, by a t-test, how much less a submission may need before its score is normalized. It catches what
converges too fast and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from marin.errors import DataError
from marin.plugins.mlperf.hyperparameters import Value

ROUNDED = 3
"""Decimals of an epoch: the checker rounds what it reads in a log so."""


@dataclass(frozen=True)
class Measured:
    """One held-out loss (nats a token), after so many samples."""

    samples: int
    loss: float


@dataclass(frozen=True)
class Point:
    """What the seeds of one batch size needed. ``samples`` has one item a seed, None where it did not reach the
    target."""

    batch_size: int
    samples: Mapping[int, int | None]
    hyperparameters: Mapping[str, Value]

    @property
    def reached(self) -> list[int]:
        """What the seeds needed that reached the target, least first."""
        return sorted(count for count in self.samples.values() if count is not None)

    @property
    def olympic_mean(self) -> float:
        """Mean of samples without the least and the most, as MLPerf scores."""
        kept = self.reached[1:-1]
        return fmean(kept) if kept else float("nan")


def samples_to_converge(measured: Sequence[Measured], target: float) -> int | None:
    """Samples at the first measurement that is at ``target`` or below; None where none is."""
    return next((one.samples for one in sorted(measured, key=lambda one: one.samples) if one.loss <= target), None)


def as_json(
    points: Sequence[Point],
    *,
    benchmark: str,
    train_samples: int,
    creator: str,
    when: str,
    platform: str,
    precision: str,
) -> dict[str, dict[str, object]]:
    """The file that ``mlperf_logging.rcp_checker`` reads: a record a batch size, in epochs of ``train_samples``, with
    the same in samples beside it.

    Raises:
        DataError: a seed did not reach the target, or there are fewer than three: without the first and the last
            nothing is left.
    """
    records: dict[str, dict[str, object]] = {}
    for point in sorted(points, key=lambda one: one.batch_size):
        missed = [str(seed) for seed, count in point.samples.items() if count is None]
        if missed or len(point.samples) < 3:
            raise DataError(
                "no reference point",
                where=f"{benchmark}, batch size {point.batch_size}",
                expected="three seeds or more, all at the target",
                found=f"{len(point.samples)} seeds" + (f", without {', '.join(missed)}" if missed else ""),
                cure="train them further, or choose a target that every seed reaches",
            )
        records[f"{benchmark}_ref_{point.batch_size}"] = {
            "Benchmark": benchmark,
            "Creator": creator,
            "When": when,
            "Platform": platform,
            "Precision": precision,
            "BS": point.batch_size,
            "Hyperparams": dict(point.hyperparameters),
            "Epochs to converge": [round(count / train_samples, ROUNDED) for count in point.reached],
            "Samples to converge": point.reached,
        }
    return records
