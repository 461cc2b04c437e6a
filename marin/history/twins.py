"""Equal runs: the same recipe, and every output the same by content. What was established of one holds for the bytes of the
other, so lists say `PASS as` the run that was replayed instead of asking for the same work again.

A twin's own record (when it ran, where, by whom) was judged by nobody; `marin verify` of the twin itself judges it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Bytes = tuple[str, tuple[tuple[str, str], ...]]
"""The recipe's digest, and each step with the digest of what it made."""


def bytes_of(recipe: str, outputs: Mapping[str, str]) -> Bytes:
    """What decides whether two complete runs are equal; ``outputs`` by step."""
    return recipe, tuple(sorted(outputs.items()))


def twins(complete: Iterable[tuple[str, Bytes]], passed: Iterable[str]) -> dict[str, str]:
    """For each of these complete runs without a verdict the first one of equal bytes that ``passed``, where there is one."""
    runs, verified = dict(complete), set(passed)
    first: dict[Bytes, str] = {}
    for run, key in runs.items():
        if run in verified:
            first.setdefault(key, run)
    return {run: first[key] for run, key in runs.items() if run not in verified and key in first}
