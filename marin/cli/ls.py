"""`marin ls`: what is in this root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import click

from marin import runs
from marin.cli.output import human_size, print_json, print_table
from marin.root import Root, open_root


@click.command()
@click.argument("what", type=click.Choice(["runs", "artifacts"]), default="runs")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def ls(what: str, as_json: bool) -> None:
    """List runs or artifacts.

    Runs come with their state, their headline numbers and the newest verdict on them; artifacts are those that
    events name, with the step and the runs that they belong to.

    \b
    Examples:
      marin ls
      marin ls runs --json
      marin ls artifacts
    """
    root = open_root()
    if what == "runs":
        _runs(root, as_json=as_json)
    else:
        _artifacts(root, as_json=as_json)


def _runs(root: Root, *, as_json: bool) -> None:
    views = list(runs.load_all(root.history()))
    if as_json:
        print_json([summarize(view) for view in views])
        return
    columns = ("run", "started", "state", "dataset", "model", "steps", "loss", "perplexity", "verified")
    print_table(columns, [_row(view) for view in views], empty="no runs yet: `dvc repro` makes one")


def summarize(view: runs.RunView) -> dict[str, object]:
    """A run in a few fields, as JSON shows it."""
    return {
        "run": view.run,
        "status": view.status,
        "started": view.started.time,
        "plan": view.plan,
        "recipe_digest": view.started.body.recipe_digest,
        "outputs": {step: result.output.digest for step, result in view.steps.items()},
        "metrics": view.metrics,
        "verdicts": dict(view.verdicts[-1].body.verdicts) if view.verdicts else None,
    }


def _row(view: runs.RunView) -> tuple[str, ...]:
    recipe = view.started.body.recipe
    model = recipe.get("model", {})
    metrics = view.metrics
    return (
        view.run,
        view.started.time[:19] + "Z",
        view.status,
        str(recipe.get("dataset", {}).get("name", "")),
        f"{model.get('architecture', '')} {model.get('num_layers', '')}x{model.get('hidden_dim', '')}",
        str(recipe.get("trainer", {}).get("num_steps", "")),
        _number(metrics.get("train.loss_last")),
        _number(metrics.get("evaluate.perplexity")),
        verdict(view),
    )


def verdict(view: runs.RunView) -> str:
    """The newest verdict on a run in a word or two."""
    if not view.verdicts:
        return "no"
    verdicts = view.verdicts[-1].body.verdicts
    for worst in ("FAIL", "UNAVAILABLE", "UNSUPPORTED"):
        named = [name for name, value in verdicts.items() if value == worst]
        if named:
            return f"{worst} {', '.join(named)}"
    passed = sum(value == "PASS" for value in verdicts.values())
    return "PASS" if passed == len(verdicts) else f"PASS {passed} of {len(verdicts)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


@dataclass
class Named:
    """An artifact, and what names it."""

    artifact: str
    kind: str
    size: int
    step: str
    runs: list[str] = field(default_factory=list)


def artifacts_of(views: list[runs.RunView]) -> list[Named]:
    """Every artifact that these runs name, once, in the order of its first mention."""
    found: dict[str, Named] = {}
    for view in views:
        for artifact, kind, size, step in _mentions(view):
            named = found.setdefault(artifact, Named(artifact, kind, size, step))
            if view.run not in named.runs:
                named.runs.append(view.run)
    return list(found.values())


def _mentions(view: runs.RunView) -> Iterator[tuple[str, str, int, str]]:
    for step, result in view.steps.items():
        yield result.output.artifact, result.output.kind, result.output.size, step
    for saved in view.checkpoints:
        yield saved.body.artifact, f"checkpoint at {saved.body.step}", saved.body.size, "train"


def _artifacts(root: Root, *, as_json: bool) -> None:
    store = root.store()
    named = artifacts_of(list(runs.load_all(root.history())))
    if as_json:
        print_json([{"artifact": item.artifact, "kind": item.kind, "size": item.size, "step": item.step,
                     "runs": item.runs, "present": store.has(item.artifact)} for item in named])
        return
    rows = [(item.artifact, item.step, item.kind, human_size(item.size), ", ".join(item.runs),
             "" if store.has(item.artifact) else "missing") for item in named]
    print_table(("artifact", "step", "kind", "size", "runs", ""), rows, empty="no artifacts yet: `dvc repro` makes some")
