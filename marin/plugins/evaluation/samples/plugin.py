"""What this part adds: the option ``--samples`` of ``marin eval``, and the verdict on what states said."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from marin.plugins.evaluation.recorded.benchmark import Benchmark
from marin.plugins.evaluation.samples.task import VERSION, checked, read

if TYPE_CHECKING:
    from marin.plugins.evaluation.recorded.evaluated import Evaluated


def _load() -> Callable[..., Evaluated]:
    from marin.plugins.evaluation.samples.drawing import evaluated

    return evaluated


BENCHMARK = Benchmark(
    "A sample", VERSION, "What the state says after each line of a file instead.", read, checked, _load, is_file=True
)
