"""`marin stage NAME`: one stage of the pipeline, as dvc.yaml calls it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.choice import OneOf
from marin.cli.execution import Machine, no_diff
from marin.cli.options import FILE, argument, flag, group, option, takes
from marin.cli.output import print_json, say
from marin.execution.tracker import choose
from marin.process.interruption import Interruption
from marin.record.events import STEPS

if TYPE_CHECKING:
    from marin.errors import Paused
    from marin.execution.executor import StageOutcome

logger = logging.getLogger(__name__)


def _write_dvc(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from marin.pipeline.dvc import with_dependencies
    from marin.recipe.params import load_params

    file = Path("dvc.yaml")
    before = file.read_text("utf-8") if file.is_file() else ""
    if (after := with_dependencies(before, load_params(Path("params.yaml")))) != before:
        file.write_text(after, "utf-8")
    say("dvc.yaml: written" if after != before else "dvc.yaml: nothing to do")
    context.exit()


@dataclass(frozen=True)
class StageSettings:
    """How a stage is made, whichever it is."""

    force: bool = flag(
        "Execute the step even if an equal result is recorded.  [env: MARIN_FORCE]", envvar="MARIN_FORCE"
    )
    machine: Machine = group(Machine)
    params: Path = option(
        "FILE", "The composed recipe.  [default: params.yaml]", type=FILE, default=Path("params.yaml")
    )


@dataclass(frozen=True)
class StageOptions:
    """What `marin stage` takes."""

    name: str = argument("NAME", type=OneOf(STEPS))
    settings: StageSettings = group(StageSettings)
    as_json: bool = flag("Print one JSON object instead of a line.", "--json")


@click.command()
@takes(StageOptions)
@no_diff
@click.option(
    "--write-dvc",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_write_dvc,
    help="Write what each stage depends on into dvc.yaml, by what its code imports under params.yaml, and end.",
)
def stage(options: StageOptions) -> None:
    """Run one stage of the pipeline: corpus, tokenizer, tokens, train, evaluate or export.

    Joins the open run of this recipe and this code, or begins one. A recorded result of the same identity is reused
    once its bytes were hashed again; nothing is executed then. The bytes go into the store, their digest into
    artifacts/NAME.json.

    \b
    Examples:
      marin stage corpus
      marin stage train --devices 2
      marin stage train --devices 8 --pause-at 100
      marin stage train --devices 2 --self-check every=50
      marin stage train --runner ray --processes 2 --devices 8
      MARIN_FORCE=1 dvc repro -f      execute everything again
      MARIN_TRACKER=wandb dvc repro   W&B follows the training too, offline, in your cache folder
    """
    pause = bring_stages((options.name,), options.settings, told=print_json_of if options.as_json else _print_line)
    if pause is not None:
        say_paused(options.name, pause, as_json=options.as_json)


def say_paused(name: str, pause: Paused, *, as_json: bool) -> None:
    """That a stage has paused, in words or as a line of JSON."""
    if as_json:
        print_json({"step": name, "action": "paused", "where": pause.where, "state": pause.found})
    else:
        say(f"{name}  paused {pause.where}, {pause.found}; {pause.cure}")


def bring_stages(
    names: Sequence[str], settings: StageSettings, *, told: Callable[[str, StageOutcome], None]
) -> Paused | None:
    """Bring the stages to their output, one after the other, in this process; each outcome is ``told`` as it comes. The
    pause that the last of them ended with, if one did.

    Raises:
        LedgerError: as :func:`marin.execution.executor.run_stage` does.
    """
    name, execution = names[0], settings.machine.execution()
    with Interruption() as interruption, ExitStack() as loading:
        # Seconds of imports, in which DVC stands between two steps of a run.
        loading.enter_context(interruption.shield())
        from marin.errors import Paused
        from marin.execution.executor import run_stage, stopped_before
        from marin.pipeline.gathering import with_documents
        from marin.pipeline.stages import PIPELINE
        from marin.process.arithmetic import apply, check
        from marin.recipe.params import load_params
        from marin.record.root import open_root
        from marin.runners.places import place_of

        choose()
        root, recipe, project = open_root(), load_params(settings.params), settings.params.resolve().parent

        def bring(step: str, force: bool = False) -> StageOutcome:
            settle = partial(
                run_stage, step, plan=PIPELINE, recipe=recipe, root=root, project=project, execution=execution
            )
            # training is a job of its own, which its step launches
            if execution.runner != "local" and step != "train" and PIPELINE.step(step).devices != "none":
                place = partial(
                    place_of(execution.runner).stage, step, plan=PIPELINE, recipe=recipe, root=root, project=project
                )
                if place(execution=execution, force=force):
                    return replace(settle(), action="executed")
            return settle(force=force)

        def contract() -> None:  # before a step that is made here imports jax
            if execution.runner == "local" and any(PIPELINE.step(one).devices != "none" for one in names):
                apply(recipe.arithmetic, execution)

        try:
            loading.close()  # a signal that came meanwhile is raised here, where the run can say so
            recipe = with_documents(root, recipe)
            if "train" in names:
                check(recipe, execution)
            if len(names) > 1:
                contract()
            for name in names:
                told(name, _with_inputs(name, partial(bring, force=settings.force), bring, contract))
        except Paused as pause:
            return pause
        except KeyboardInterrupt as signal:  # before the step: one that was executing has said so itself
            with interruption.shield():
                stopped = stopped_before(
                    name, plan=PIPELINE, recipe=recipe, root=root, project=project, signal=str(signal)
                )
            raise stopped from signal
    return None


def print_json_of(name: str, outcome: StageOutcome) -> None:
    """What came of a stage, as a line of JSON."""
    result = outcome.result
    print_json(
        {
            "run": outcome.run,
            "step": name,
            "action": outcome.action,
            "digest": result.output.digest,
            "kind": result.output.kind,
            "size": result.output.size,
            "artifact": result.output.artifact,
            "metrics": dict(result.metrics),
            "seconds": result.seconds,
            "event": result.completed_at,
            "run_completed": outcome.completed,
        }
    )


def _print_line(name: str, outcome: StageOutcome) -> None:
    say_outcome(name, outcome)
    if outcome.completed and outcome.action != "present":
        say_complete(outcome.run)


def say_outcome(name: str, outcome: StageOutcome) -> None:
    """What came of a stage, in words."""
    result = outcome.result
    how = {
        "executed": f"executed in {result.seconds:.1f} s",
        "cached": f"as event {result.completed_at} recorded it",
        "present": "nothing to do",
    }[outcome.action]
    say(f"{name}  {result.output.digest}  {how}  (run {outcome.run})")


def say_complete(run: str) -> None:
    """What can be done with a run that is complete."""
    say(
        f"run {run} is complete: check it with `marin verify {run}`; `marin store push ADDRESS` "
        "sends its bytes (`dvc push` has none: Git has the pointers)",
        err=True,
    )


def _with_inputs(
    name: str, bring: Callable[[str], StageOutcome], make: Callable[[str], StageOutcome], before: Callable[[], None]
) -> StageOutcome:
    """``bring`` the step to its output. What it reads and this root has no result of is made first, after ``before``: DVC skips
    a stage whose line in dvc.lock came from another root, by Git."""
    from marin.errors import MissingInput

    while True:
        try:
            return bring(name)
        except MissingInput as absent:
            if absent.step == name:
                raise
            logger.info("%s: not made in this root yet, though dvc.lock has it: made first", absent.step)
            before()
            _with_inputs(absent.step, make, make, before)
