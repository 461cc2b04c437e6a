"""`marin repro`: the graph of dvc.yaml without DVC."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger import Unavailable
from marin.cli.choice import OneOf
from marin.cli.execution import no_diff
from marin.cli.options import argument, flag, group, takes
from marin.cli.output import say
from marin.cli.running.stage import StageSettings, bring_stages, print_json_of, say_complete, say_outcome, say_paused
from marin.errors import UsageError
from marin.record.events import STEPS

if TYPE_CHECKING:
    from marin.execution.executor import StageOutcome


@dataclass(frozen=True)
class ReproOptions:
    """What `marin repro` takes."""

    name: str | None = argument("[NAME]", required=False, type=OneOf(STEPS))
    settings: StageSettings = group(StageSettings)
    write_lock: bool = flag("Have `dvc repro` write dvc.lock where it is of something else.", "--dvc")
    as_json: bool = flag("Print one JSON object a stage.", "--json")


@click.command()
@takes(ReproOptions)
@no_diff
@click.pass_context
def repro(ctx: click.Context, options: ReproOptions) -> None:
    """Run every stage of the pipeline that is not up to date: what `dvc repro` does, without DVC.

    With NAME that stage, and before it those that it reads. The same stages in the order of dvc.yaml, in one process: the
    same pointers and receipts, the same events. What is up to date the ledger says, by identity, and not the times of
    files: a recorded result is reused once its bytes were hashed again.

    dvc.lock is DVC's and is not written here. Where it says something else than what is here now, the last line names the
    first thing; `dvc repro` then calls the stages, which find nothing to do, and writes it (--dvc has it called).

    \b
    Examples:
      marin repro
      marin repro tokens
      marin repro --devices 2
    """
    ended: list[StageOutcome] = []

    def told(stage: str, outcome: StageOutcome) -> None:
        ended.append(outcome)
        if options.as_json:
            print_json_of(stage, outcome)
        else:
            say_outcome(stage, outcome)

    from marin.cli.running.dvc_lock import first_changed, frozen
    from marin.pipeline.stages import PIPELINE

    steps = PIPELINE.steps if options.name is None else (*PIPELINE.before(options.name), PIPELINE.step(options.name))
    names = tuple(step.name for step in steps)
    project = options.settings.params.resolve().parent
    if held := frozen(project, names):
        raise UsageError(
            "a stage is frozen",
            where="dvc.yaml",
            expected="stages that may be executed",
            found=", ".join(held),
            cure=f"dvc unfreeze {held[0]}, or dvc repro, which leaves it as it is",
        )
    pause = bring_stages(names, options.settings, told=told)
    if pause is not None:
        say_paused(names[len(ended)], pause, as_json=options.as_json)
        return
    if ended[-1].completed and ended[-1].action != "present":
        say_complete(ended[-1].run)
    if changed := first_changed(project, names):
        say(
            f"dvc.lock is of something else (first: {changed}); `dvc repro` finds nothing to do, and writes it",
            err=True,
        )
        if options.write_lock:
            words = () if options.name is None else (options.name,)
            ctx.exit(subprocess.run([_dvc(), "repro", *words], cwd=project, check=False).returncode)


def _dvc() -> str:
    """The `dvc` beside this Python, or on PATH."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("dvc", path=os.pathsep.join((beside, os.environ.get("PATH", ""))))
    if found is None:
        raise Unavailable(
            "there is no dvc to write dvc.lock",
            where="--dvc",
            expected="dvc beside this Python, or on PATH",
            found="none",
            cure="install it (`make environment` does), or leave out --dvc",
        )
    return found
