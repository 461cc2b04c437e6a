"""Parsers of foreign bytes of this plugin, which tests/fuzz tries."""

from marin.plugins.mlperf.result import read_result
from tests.fuzz.parsers import Parser, given

PARSERS = [
    Parser(
        "a result of MLPerf",
        lambda data: read_result(data, "x"),
        given(b':::MLLOG {"key": "seed", "value": 1, "time_ms": 2, "metadata": {"file": "x", "lineno": 3}}\n'),
        ("marin.plugins.mlperf.result.read_result",),
    )
]
