"""What this plugin adds: the option ``--text`` of ``marin eval``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from marin.plugins.evaluation.recorded.benchmark import Benchmark
from marin.plugins.perplexity.task import VERSION, checked, read

if TYPE_CHECKING:
    from marin.plugins.evaluation.recorded.evaluated import Evaluated


def _load() -> Callable[..., Evaluated]:
    from marin.plugins.perplexity.scoring import evaluated

    return evaluated


BENCHMARK = Benchmark(
    "A text", VERSION, "Loss, perplexity and bits per byte of a text instead.", read, checked, _load, is_file=True
)
