"""Why a number of one run says nothing beside that of another: said beside the number, in a few words.

A loss in nats a token depends on what a token is and on the text that was held out; shares of questions on the questions;
seconds on the machine. Only what is recorded is asked, and nothing is executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from marin.history.projection.text import flatten
from marin.history.run import Run

PER_TOKEN = ("loss", "perplexity")
PER_BYTE = "bits_per_byte"
OF_TIME = ("seconds", "tokens_per_second", "energy_joules", "core_hours")
_QUESTIONS = ("pairs_won", "pairs_tied", "pairs")


def beside(one: Run, other: Run, name: str) -> tuple[str, ...]:
    """Why the number ``name`` (as ``step.name``) of ``one`` cannot be set against that of ``other``; nothing where it can.
    Code is named too: it may be what makes the difference."""
    step, _, metric = name.partition(".")
    if not metric:
        step, metric = "", step
    found: list[str] = []
    if metric in OF_TIME:
        found += ["other machine"] * (_machine(one) != _machine(other))
        return tuple(found)
    if step in ("evaluate", "evaluation", "") or metric == PER_BYTE:
        found += _held_out(one, other)
        if metric in (*PER_TOKEN, *_QUESTIONS) and _section(one, "evaluation") != _section(other, "evaluation"):
            found.append("measured otherwise")
    elif step == "train" and metric.startswith("loss") and _output(one, "corpus") != _output(other, "corpus"):
        found.append("other training text")
    if metric in PER_TOKEN or metric.startswith("loss"):
        if _output(one, "tokenizer") != _output(other, "tokenizer"):
            found.append("other tokenizer")
        if _key(one, "model", "seq_len") != _key(other, "model", "seq_len"):
            found.append("other context")
    if _other_code(one, other):
        found.append("other code")
    return tuple(found)


def beside_all(runs: Sequence[Run], other: Run, name: str) -> tuple[str, ...]:
    """What :func:`beside` says of any of these runs."""
    return tuple(dict.fromkeys(word for run in runs for word in beside(run, other, name)))


def _held_out(one: Run, other: Run) -> list[str]:
    mine, theirs = _output(one, "corpus"), _output(other, "corpus")
    if mine == theirs:
        return []
    sizes = ("corpus.validation_bytes", "corpus.validation_documents", "corpus.minimal_pairs")
    alike = mine and theirs and all(one.metrics.get(name) == other.metrics.get(name) for name in sizes)
    return ["other corpus" if alike else "other held-out text"]


def _output(run: Run, step: str) -> str:
    return run.steps[step].output.digest if step in run.steps else ""


def _section(run: Run, name: str) -> Mapping[str, str]:
    found = run.started.body.recipe.get(name)
    return flatten(found) if isinstance(found, Mapping) else {}


def _key(run: Run, section: str, name: str) -> object:
    return _section(run, section).get(name)


def _other_code(one: Run, other: Run) -> bool:
    """Whether they executed other code, or under another lock. In one tree no file has two versions: recipes that ask for other
    files of it make no other code."""
    mine, theirs = one.started.body, other.started.body
    same = mine.code == theirs.code or any(
        mine.code.get(name) == theirs.code.get(name, "") for name in ("steps", "tree")
    )
    return not same or mine.environment.get("lock") != theirs.environment.get("lock")


def _machine(run: Run) -> tuple[object, object]:
    environment = run.started.body.environment
    processor, cores = environment.get("processor"), environment.get("cores")
    return (
        processor.get("model") if isinstance(processor, Mapping) else None,
        cores.get("available") if isinstance(cores, Mapping) else cores,
    )
