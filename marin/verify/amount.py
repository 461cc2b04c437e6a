"""How much of a store a verification reads: by what the run's events say of sizes, before a byte of it is fetched."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from marin.history.run import Run
from marin.record.events import DATA_STEPS
from marin.verify.segments.sampling import Selection


def amount(run: Run, verdicts: Collection[str], selection: Selection, *, workers: int = 1, screen: bool = False) -> int:
    """Bytes of outputs and training checkpoints that these verdicts read, each artifact once. Lists of files, traces and
    tables are not in it: they are small, and no event has their sizes."""
    sizes = {step.output.artifact: step.output.size for step in run.steps.values()}
    sizes |= {fact.body.artifact: fact.body.size for fact in run.checkpoints}
    needed = {artifact for verdict in verdicts for artifact in _needed(run, verdict, selection, workers)}
    if screen:
        needed |= {fact.body.artifact for fact in run.checkpoints}
    return sum(sizes.get(artifact, 0) for artifact in needed)


def _needed(run: Run, verdict: str, selection: Selection, workers: int) -> Iterator[str]:
    outputs = {name: step.output.artifact for name, step in run.steps.items()}
    saved = {fact.body.state: fact.body.artifact for fact in run.checkpoints}
    match verdict:
        case "artifacts":
            yield from outputs.values()
            yield from (artifact for artifact in saved.values() if artifact not in run.let_go)
        case "data":
            yield from (outputs[name] for name in DATA_STEPS if name in outputs)
        case "training":
            yield from (outputs[name] for name in ("tokens", "tokenizer") if name in outputs)
            if selection.mode != "full" or workers > 1:
                starts = [run.segments[position].body.start_state for position in selection.positions]
                yield from (saved[state] for state in starts if state in saved)
        case "model" | "evaluation":
            yield from (
                outputs[name] for name in ("train", "tokenizer", "corpus", "tokens", "export") if name in outputs
            )
