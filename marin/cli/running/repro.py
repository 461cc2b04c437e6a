"""`marin repro`: the graph of dvc.yaml without DVC."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.choice import OneOf
from marin.cli.execution import no_diff, takes_execution
from marin.cli.output import say
from marin.cli.running.stage import (
    bring_stages,
    forced,
    of_params,
    print_json_of,
    say_complete,
    say_outcome,
    say_paused,
)
from marin.record.events import STEPS

if TYPE_CHECKING:
    from marin.execution.executor import StageOutcome
    from marin.recipe.schema import Execution


@click.command()
@click.argument("name", metavar="[NAME]", required=False, type=OneOf(STEPS))
@forced
@takes_execution
@of_params
@no_diff
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a stage.")
def repro(name: str | None, force: bool, params: Path, as_json: bool, execution: Execution) -> None:
    """Run every stage of the pipeline that is not up to date: what `dvc repro` does, without DVC.

    With NAME that stage, and before it those that it reads. The same stages in the order of dvc.yaml, in one process: the
    same pointers and receipts, the same events. What is up to date the ledger says, by identity, and not the times of
    files: a recorded result is reused once its bytes were hashed again.

    dvc.lock is DVC's and is not written. Where it says something else than what is here now, the last line names the
    first file; `dvc repro` then calls the stages, which find nothing to do, and writes it.

    \b
    Examples:
      marin repro
      marin repro tokens
      marin repro --devices 2
    """
    ended: list[StageOutcome] = []

    def told(stage: str, outcome: StageOutcome) -> None:
        ended.append(outcome)
        if as_json:
            print_json_of(stage, outcome)
        else:
            say_outcome(stage, outcome)

    from marin.pipeline.dvc import first_changed
    from marin.pipeline.stages import PIPELINE

    steps = PIPELINE.steps if name is None else (*PIPELINE.before(name), PIPELINE.step(name))
    names = tuple(step.name for step in steps)
    pause = bring_stages(names, params, execution, force=force, told=told)
    if pause is not None:
        say_paused(names[len(ended)], pause, as_json=as_json)
        return
    if ended[-1].completed and ended[-1].action != "present":
        say_complete(ended[-1].run)
    if changed := first_changed(params.resolve().parent, names):
        say(
            f"dvc.lock is of something else (first: {changed}); `dvc repro` finds nothing to do, and writes it",
            err=True,
        )
