"""`marin unlearn`: a run again as if it had never seen some documents, from the last state that had not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from marin.cli.execution import Machine, no_diff
from marin.cli.options import argument, flag, group, option, takes
from marin.cli.output import print_json, say
from marin.plugins.unlearning.kinds import UnlearningForked
from marin.process.text import several

if TYPE_CHECKING:
    from marin.history.run import Run
    from marin.plugins.unlearning.request import Plan
    from marin.recipe.schema import Execution
    from marin.record.root import Root


@dataclass(frozen=True)
class UnlearnOptions:
    """What `marin unlearn` takes."""

    run: str = argument("RUN")
    documents: tuple[str, ...] = option(
        "ID", "As `marin data list RUN` shows it; may be repeated.", "--document", multiple=True
    )
    sources: tuple[str, ...] = option(
        "NAME", "All documents of this source; may be repeated.", "--source", multiple=True
    )
    conditions: tuple[str, ...] = option(
        "KEY=VALUE",
        "All documents with this value in their metadata, such as a licence; repeated, those with all of them.",
        "--where",
        multiple=True,
    )
    reason: str = option("TEXT", "Why, for the record: everybody who has the log can read it.", default="")
    machine: Machine = group(Machine)
    dry_run: bool = flag("Print what it would take; record and run nothing.")
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command()
@takes(UnlearnOptions)
@no_diff
def unlearn(options: UnlearnOptions) -> None:
    """Make RUN again without documents, in equal bits to training from the start without them.

    The request is recorded, the training is forked at the last recorded state before the first use of a document, and
    goes on with the positions of the documents blank. What the documents decided before is made again too: the tokenizer,
    and if it is another one then, the training from its beginning. `marin verify` proves the run that comes of it.

    \b
    Examples:
      marin unlearn latest --document 0a1b2c3d4e5f --reason "asked for by its author"
      marin unlearn latest --document ID --document ID --dry-run
      marin unlearn latest --source forum --where licence=unknown --dry-run
    """
    execution = options.machine.execution()
    from marin.plugins.unlearning.forks import fork_of
    from marin.plugins.unlearning.request import plan, request
    from marin.record.root import open_root

    root = open_root()
    planned = plan(
        root,
        options.run,
        options.documents,
        sources=options.sources,
        where=_where(options.documents, options.sources, options.conditions),
    )
    if options.dry_run:
        _print_plan(planned, None, None, None, as_json=options.as_json)
        return
    root.check_writable()
    index = request(root, planned, options.reason)
    if not options.as_json:
        say(f"event {index}: the request is recorded", err=True)
    made = _fork(root, planned, execution)
    _print_plan(planned, index, made, fork_of(root.history(), made), as_json=options.as_json)


def _where(documents: tuple[str, ...], sources: tuple[str, ...], conditions: tuple[str, ...]) -> dict[str, str]:
    """The conditions by key; something has to be asked for."""
    from marin.errors import UsageError

    pairs = [condition.partition("=") for condition in conditions]
    wrong = next(
        (condition for condition, (key, mark, _) in zip(conditions, pairs, strict=True) if not key or not mark), None
    )
    if wrong is not None or not (documents or sources or conditions):
        raise UsageError(
            "a condition on metadata cannot be read" if wrong is not None else "nothing to unlearn",
            where="--where" if wrong is not None else "marin unlearn",
            expected="KEY=VALUE" if wrong is not None else "--document ID, --source NAME or --where KEY=VALUE",
            found=wrong or "none",
            cure="see `marin data list RUN` and `marin data show ID`",
        )
    return {key: value for key, _, value in pairs}


def _fork(root: Root, planned: Plan, execution: Execution) -> Run:
    """Execute the recipe without the documents, forked from the run that had them."""
    import msgspec

    from marin.errors import StepFailed
    from marin.graph.execution.loop import Options, execute_graph
    from marin.graph.recipes import pipeline_graph
    from marin.history import runs
    from marin.process.arithmetic import check
    from marin.recipe.schema import digest

    check(planned.recipe, execution)
    forked = msgspec.structs.replace(execution, fork=planned.run.run)
    graph, _ = pipeline_graph([planned.recipe])
    outcome = execute_graph(graph, root, options=Options(execution=forked))
    wanted, history = digest(planned.recipe), root.history()
    newest = [fact.body.run for fact in runs.started_runs(history, recipe=wanted)]
    if outcome.failures or not newest:
        failure = next(iter(outcome.failures.values()), None)
        raise StepFailed(
            "the run has not all its outputs",
            where=failure.address if failure is not None else f"run {planned.run.run}",
            expected="a whole run without the documents",
            found=failure.error if failure is not None else "none",
            cure="correct it and run the same command again: the rest is done",
        )
    return runs.load(history, newest[-1])


def _print_plan(
    planned: Plan, index: int | None, made: Run | None, fork: UnlearningForked | None, *, as_json: bool
) -> None:
    if as_json:
        print_json(_described(planned, index, made, fork))
        return
    for document in planned.documents:
        steps = document.steps
        read = f"in {several(len(steps), 'train steps')}, first in {steps[0]}" if steps else "read by no train step"
        say(f"{document.id}  {document.tokens} tokens, {read}")
        for copy in document.copies:
            say(f"  the same text stays as {copy}")
        if document.behind:
            say(
                f"  {len(document.behind)} copies that the collection had removed stay removed: {document.behind[0]}, ..."
            )
    total, at = planned.recipe.trainer.num_steps, planned.place.step
    if made is None:
        say(
            f"forked before train step {at}: {planned.executed} of {total} train steps to execute; "
            "all of them if the tokenizer is another one without these documents"
        )
        return
    say(f"run         {made.run}  (from {planned.run.run})")
    if fork is not None:
        why = (
            "the tokenizer is the same"
            if fork.same_tokenizer
            else "the tokenizer is another one without these documents"
        )
        say(f"forked      before train step {fork.step} of {total}: {why}")
    say(f"model       {made.output('export').digest}")
    say(f"verify it: marin verify {made.run}", err=True)


def _described(planned: Plan, index: int | None, made: Run | None, fork: UnlearningForked | None) -> dict[str, Any]:
    place = planned.place if fork is None else fork
    return {
        "from_run": planned.run.run,
        "documents": [
            {
                "id": document.id,
                "tokens": document.tokens,
                "train_steps": len(document.steps),
                "first_use": document.steps[0] if document.steps else None,
                "copies": list(document.copies),
                "behind": list(document.behind),
            }
            for document in planned.documents
        ],
        "first_use": planned.first_use,
        "fork": {"step": place.step, "state": place.state},
        "same_tokenizer": fork.same_tokenizer if fork is not None else None,
        "request": index,
        "run": made.run if made is not None else None,
        "model": made.output("export").digest if made is not None else None,
    }
