"""`marin train`: a recipe by Hydra's grammar, through every step of the pipeline; `-m` for many of them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marin.cli.output import print_json, print_table
from marin.root import Root, open_root

if TYPE_CHECKING:
    from marin.composition import Composed
    from marin.forecast import Forecast

log = logging.getLogger(__name__)


@dataclass
class Trained:
    """How one recipe of the command line ended: its run, and what each step did; ``error`` is the last line of a failure."""

    overrides: tuple[str, ...]
    recipe_digest: str
    run: str | None = None
    steps: dict[str, str] = field(default_factory=dict)
    error: str = ""
    exit_code: int = 0


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("overrides", nargs=-1, metavar="[GROUP=NAME | KEY=VALUE]...")
@click.option("-m", "--multirun", is_flag=True, help="A sweep: every combination of the values given, as in seed=1,2,3.")
@click.option("--config-json", metavar="JSON|FILE", help="Values as a JSON object: over the groups, under the command line.")
@click.option("--devices", type=click.IntRange(min=1), default=1, metavar="N",
              help="How many devices to use (on a CPU they are virtual); never part of a recipe.  [default: 1]")
@click.option("--force", is_flag=True, help="Execute every step even if an equal result is recorded.")
@click.option("--dry-run", is_flag=True, help="Print for every step whether it is a hit, and what it would cost; run nothing.")
@click.option("--device", default="here", metavar="NAME", help="For --dry-run: a device of conf/prices.yaml.  [default: here]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a run.")
def train(overrides: tuple[str, ...], multirun: bool, config_json: str | None, devices: int, force: bool, dry_run: bool,
          device: str, as_json: bool) -> None:
    """Compose a recipe from the groups in conf/ and run the whole pipeline on it.

    GROUP=NAME picks a file below conf/ (model, dataset, tokenizer, optimizer, trainer, profile, evaluation; a + before it
    is allowed), KEY=VALUE sets one value by its path, ~KEY gives it the recipe's own default. What wins: the defaults of
    conf/config.yaml, then groups, then --config-json, then values on the command line. Results that the ledger has are
    taken over, whoever made them.

    Exit status: 0 done, 1 a run of a sweep failed (the others are finished), 2 a group, a key or a value is wrong.

    \b
    Examples:
      marin train model=nano trainer=smoke
      marin train +model=gpt2-small +dataset=babylm_10M optimizer.learning_rate=1e-3 seed=1 --devices 2
      marin train model=nano seed=1,2,3 -m
      marin train model=gpt2-small trainer=long --dry-run --device h100
    """
    from marin.composition import compose, sweep

    composed = list(sweep(overrides, config_json=config_json)) if multirun else [compose(overrides, config_json=config_json)]
    root = open_root()
    if dry_run:
        _forecast(root, composed, device, devices, as_json=as_json)
        return
    root.signer()
    outcomes = []
    for number, one in enumerate(composed, start=1):
        if multirun:
            log.info("run %d of %d: %s", number, len(composed), " ".join(one.overrides) or "as composed")
        outcomes.append(_run(root, one, devices, force=force))
        if outcomes[-1].exit_code and not multirun:
            break
    _print(root, outcomes, as_json=as_json, table=multirun)
    if worst := max(outcome.exit_code for outcome in outcomes):
        raise click.exceptions.Exit(worst if not multirun else 1)


def _run(root: Root, composed: Composed, devices: int, *, force: bool) -> Trained:
    """Every stage in a process of its own, as dvc runs them, in a folder that belongs to the recipe."""
    import json

    import yaml

    from marin.files import write_whole
    from marin.pipeline import PIPELINE
    from marin.recipe import digest

    outcome = Trained(composed.overrides, digest(composed.recipe))
    folder = root.local / "work" / "train" / outcome.recipe_digest.removeprefix("sha256:")[:32]
    params = folder / "params.yaml"
    write_whole(params, yaml.safe_dump(dict(composed.values), sort_keys=False, allow_unicode=True).encode())
    for step in PIPELINE.steps:
        command = [sys.executable, "-m", "marin.cli.main", "stage", step.name, "--params", str(params), "--devices", str(devices),
                   "--json", *(["--force"] if force else [])]
        status, out = _call(command, root)
        if status:
            outcome.exit_code, outcome.error = status, step.name
            return outcome
        made: dict[str, Any] = json.loads(out)
        outcome.run, outcome.steps[step.name] = made["run"], made["action"]
    return outcome


def _call(command: Sequence[str], root: Root) -> tuple[int, bytes]:
    """Run a stage; Ctrl-C reaches it by itself (the terminal signals the whole group), and is waited for."""
    environment = os.environ | {"MARIN_ROOT": root.location if "://" in root.location else str(Path(root.location).resolve())}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        try:
            out, _ = child.communicate()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            child.communicate()
            raise
    return child.returncode, out


def _forecast(root: Root, composed: Sequence[Composed], device: str, devices: int, *, as_json: bool) -> None:
    from marin.code import code_folder
    from marin.composition import PRICES, conf_folder
    from marin.cost import load_prices, totals
    from marin.forecast import forecast
    from marin.measured import measurements
    from marin.pipeline import PIPELINE
    from marin.plan import code_identity
    from marin.recipe import digest

    history, prices = root.history(), load_prices(conf_folder() / PRICES)
    prices.device(device)
    measured, code = measurements(history), code_identity(PIPELINE, code_folder())
    everything: list[Forecast] = []
    for one in composed:
        found = forecast(PIPELINE, one.recipe, code, history, prices, measured, device=device, devices=devices)
        everything += found
        if as_json:
            print_json({"overrides": list(one.overrides), "recipe_digest": digest(one.recipe),
                        "steps": [item.as_json() for item in found],
                        "total": totals(item.estimate for item in found).as_json(), "prices": str(prices.date)})
            continue
        if len(composed) > 1:
            click.echo(f"{' '.join(one.overrides)}")
        _table(found)
        click.echo()
    if not as_json:
        line = prices.device(device)
        total = totals(item.estimate for item in everything)
        hits = sum(item.action == "hit" for item in everything)
        click.echo(f"{hits} of {len(everything)} steps are hits. {device}: {line.note}; {line.hourly:g} {prices.currency} an "
                   f"hour, seen {line.seen}.")
        if not total.fits:
            click.echo(f"note: not everything fits into {device}'s memory", err=True)


def _table(found: Sequence[Forecast]) -> None:
    from marin.cost import in_words, totals

    rows: list[tuple[str, ...]] = []
    for item in found:
        if item.action == "hit":
            rows.append((item.step, "hit", "", "", "", "", "", item.why))
            continue
        words = in_words(item.estimate)
        memory = words["memory"] + ("" if item.estimate.fits else " (too much)")
        rows.append((item.step, "run", words["flops"], memory, words["bytes"], words["time"], words["price"],
                     f"{item.why}; {item.estimate.basis}"))
    whole = in_words(totals(item.estimate for item in found))
    rows.append(("total", "", whole["flops"], whole["memory"], whole["bytes"], whole["time"], whole["price"], ""))
    print_table(("step", "", "FLOPs", "memory", "writes", "time", "price", "why"), rows, empty="")


def _print(root: Root, outcomes: Sequence[Trained], *, as_json: bool, table: bool) -> None:
    from marin import runs
    from marin.cli.summary import headline

    history = root.history()
    views = {item.run: runs.load(history, item.run) for item in outcomes if item.run is not None}
    if as_json:
        for item in outcomes:
            view = views.get(item.run or "")
            print_json({"run": item.run, "overrides": list(item.overrides), "recipe_digest": item.recipe_digest,
                        "steps": item.steps, "failed": item.error or None,
                        "metrics": view.metrics if view is not None else {}})
        return
    if not table:
        for view in views.values():
            for name, value in headline(view, root.reader().checkpoint()):
                click.echo(f"{name.ljust(12)}{value}")
        return
    print_table(("", "run", "steps", "loss", "perplexity"), [_row(item, views.get(item.run or "")) for item in outcomes],
                empty="")


def _row(item: Trained, view: Any) -> tuple[str, ...]:
    metrics = view.metrics if view is not None else {}
    executed = sum(action == "executed" for action in item.steps.values())
    state = f"failed at {item.error}" if item.error else f"{executed} executed, {len(item.steps) - executed} taken over"
    return (" ".join(item.overrides), item.run or "", state, _number(metrics.get("train.loss_last")),
            _number(metrics.get("evaluate.perplexity")))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
