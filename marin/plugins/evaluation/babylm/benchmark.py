"""BabyLM's data as an option of ``marin eval``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from marin.plugins.evaluation.babylm.tasks import BABYLM, checked, read
from marin.plugins.evaluation.recorded.benchmark import Benchmark

if TYPE_CHECKING:
    from marin.plugins.evaluation.recorded.evaluated import Evaluated


def _load() -> Callable[..., Evaluated]:
    from marin.plugins.evaluation.babylm.scoring import evaluated

    return evaluated


BENCHMARK = Benchmark(
    "BabyLM",
    BABYLM,
    "BabyLM's data instead: full_eval or fast_eval of its pipeline; --tasks names some of its data sets.",
    read,
    checked,
    _load,
)
