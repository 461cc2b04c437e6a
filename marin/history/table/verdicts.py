"""Verdicts as lists and pages show them: in their order, and of a run whose bytes are those of another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from marin.record.verdicts import SHOWN, Bytes


def in_order(verdicts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and outcomes in the order of causes; a record has them in that of the alphabet."""
    return [(name, verdicts[name]) for name in SHOWN if name in verdicts]


def same_numbers[K](own: Mapping[K, float], others: Mapping[K, float]) -> bool:
    """Whether each number of ``own`` stands in ``others`` too, to the last bit."""
    return all(key in others and others[key].hex() == value.hex() for key, value in own.items())


def passed_as(twin: str) -> str:
    """What is said of a run whose bytes are those of ``twin``, which passed."""
    return f"PASS as {twin}"


def twins(complete: Iterable[tuple[str, Bytes]], passed: Iterable[str]) -> dict[str, str]:
    """For each of these complete runs without a verdict the first one of equal bytes that ``passed``, if there is one.

    What was established of one holds for the bytes of the other, so lists say ``PASS as`` it where they show no number of
    the other that the verified run does not have; the twin's own record (when it ran, where, by whom) was judged by nobody.
    """
    runs, verified = dict(complete), set(passed)
    first: dict[Bytes, str] = {}
    for run, key in runs.items():
        if run in verified:
            first.setdefault(key, run)
    return {run: first[key] for run, key in runs.items() if run not in verified and key in first}
