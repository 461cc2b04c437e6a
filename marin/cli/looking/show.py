"""`marin show`: one run, one artifact or one event."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from ledger import NotFound
from marin.cli.looking import find
from marin.cli.looking.log import describe
from marin.cli.looking.ls import tags_in_words, verdict
from marin.cli.looking.summary import print_summary
from marin.cli.looking.watch import sampled_texts
from marin.cli.naming import known_digest
from marin.cli.options import argument, flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import print_fields, print_table
from marin.errors import UsageError
from marin.history import runs
from marin.history.catalog import open_catalog, twin_of
from marin.history.run import Run, plan_of, was_interrupted
from marin.history.table.machine import rewards
from marin.history.table.nondeterminism import MARK, nondeterministic
from marin.history.table.underway import underway
from marin.preregistration.called import people
from marin.process.text import number_text, visible_json
from marin.provenance.plugins import load_plugin
from marin.recipe.objective import objective_plugins
from marin.recipe.units import human_size
from marin.record.root import Root, open_root

EVENT_PREFIX, METRIC = "event:", "metric"


@dataclass(frozen=True)
class ShowOptions:
    """What `marin show` takes."""

    name: str = argument("ID")
    number: str | None = argument("[NAME=NUMBER]", required=False)
    summary: bool = flag("A run, or that of a pointer, in a few lines, with what to try next.")
    recipe: bool = flag("Only the recipe of the run, as it is digested.")
    step: int | None = option("N", "With --data: what train step N saw.", least=0)
    data: bool = flag("The documents and tokens, or some completions, of the train step that --step names.")
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command()
@takes(ShowOptions)
def show(options: ShowOptions) -> None:
    """Show a run, a step, an artifact, an event or the runs behind a number.

    ID is a run (its id, a unique beginning of it, or latest), a step of one (latest/train) or of a graph (its address,
    such as report/grammar-scaling), an artifact, a content or the identity of a step (sha256:...), an event (its index,
    or event: and its id), or the path of a pointer such as artifacts/train.json.

    `metric NAME=NUMBER` names the runs whose number rounds to NUMBER, or the nearest ones; `metric NAME` the newest.

    \b
    Examples:
      marin show latest
      marin show latest --recipe
      marin show latest --step 17 --data
      marin show latest/train
      marin show metric evaluate.perplexity=12.3
      marin show 41 --json
      marin show artifacts/export.json
      marin show artifacts/export.json --summary
    """
    root = open_root()
    if options.data != (options.step is not None):
        raise UsageError(
            "--step and --data belong together",
            where="marin show",
            expected="marin show RUN --step N --data",
            found="one of them",
            cure="give both",
        )
    if (options.name == METRIC) != (options.number is not None):
        raise UsageError(
            "what is to be shown?",
            where=" ".join(filter(None, (options.name, options.number))),
            expected="ID, or metric NAME=NUMBER",
            found=options.number or "no name of a metric",
            cure="see `marin show --help`",
        )
    if options.number is not None:
        find.show_number(root, options.number, as_json=options.as_json)
    elif options.name.startswith("sha256:") or (
        options.name not in _runs(root) and known_digest(root, options.name) is not None
    ):
        find.show_digest(root, options.name, as_json=options.as_json)
    elif options.name.endswith(".json") and Path(options.name).is_file() and options.summary:
        view = runs.load(root.history(), find.run_of_pointer(root, Path(options.name)))
        print_summary(view, root.reader().checkpoint(), twin_of(root, view), root.history(), named=True)
    elif options.name.endswith(".json") and Path(options.name).is_file():
        find.show_pointer(root, Path(options.name), as_json=options.as_json)
    elif options.name.isdigit() or options.name.startswith(EVENT_PREFIX):
        _show_event(root, options.name, as_json=options.as_json)
    elif "/" in options.name:
        find.show_step(root, options.name, as_json=options.as_json)
    else:
        with open_catalog(root) as catalog:
            graph = [] if options.name in catalog.run_ids() else catalog.results(options.name)
            run = "" if graph else catalog.resolve(options.name)
        if graph:
            find.print_results_of_graph(root, options.name, graph, as_json=options.as_json)
            return
        view = runs.load(root.history(), run)
        if options.step is not None:
            show_data(root, view, options.step, as_json=options.as_json)
        elif options.recipe:
            print_json(view.started.body.recipe, indent=2)
        elif options.summary:
            print_summary(view, root.reader().checkpoint(), twin_of(root, view), root.history())
        elif options.as_json:
            found = {"same_as": twin_of(root, view) or None, "contradiction": _contradiction(root, view) or None}
            now = underway(root.history(), view, datetime.now(UTC))
            texts = [{"step": at, "prompt": prompt, "text": text} for at, prompt, text in sampled_texts(root, view.run)]
            print_json({**whole(view), **found, "samples": texts, "underway": now and now.as_json()})
        else:
            _show_run(root, view)


def _runs(root: Root) -> list[str]:
    with open_catalog(root) as catalog:
        return catalog.run_ids()


def whole(view: Run) -> dict[str, object]:
    """All that is known of a run, as JSON shows it."""
    started = view.started.body
    return {
        "run": view.run,
        "status": view.status,
        "started": view.started.time,
        "plan": view.plan,
        "recipe_digest": started.recipe_digest,
        "outputs": {step: result.output.digest for step, result in view.steps.items()},
        "metrics": view.metrics,
        "verdicts": view.verdict or None,
        "pipeline": plan_of(started.pipeline),
        "experiment": started.experiment or None,
        "recipe": started.recipe,
        "code": started.code,
        "environment": started.environment,
        "continues": msgspec.to_builtins(started.continues),
        "archived": view.labels.archived,
        "description": view.labels.description,
        "tags": dict(view.labels.tags),
        "events": {"first": view.started.index, "last": view.last_index},
        "steps": {
            name: msgspec.to_builtins(step) | {"attempts": view.attempts.get(name, 0)}
            for name, step in view.steps.items()
        },
        "segments": [{"index": fact.index, **msgspec.to_builtins(fact.body)} for fact in view.segments],
        "checkpoints": [{"index": fact.index, **msgspec.to_builtins(fact.body)} for fact in view.checkpoints],
        "failures": [{"index": fact.index, **msgspec.to_builtins(fact.body)} for fact in view.failures],
        "preemptions": [{"index": fact.index, **msgspec.to_builtins(fact.body)} for fact in view.preemptions],
        "replays": [
            {"index": fact.index, "time": fact.time, **msgspec.to_builtins(fact.body)} for fact in view.verdicts
        ],
        "claimed": [
            {"index": fact.index, "time": fact.time, **msgspec.to_builtins(fact.body)} for fact in view.claimed
        ],
    }


def _contradiction(root: Root, view: Run) -> str:
    """Where a record that somebody else may have written contradicts itself, so that its numbers are not to be
    believed; "" where it does not."""
    if root.is_own() and not len(root.history().written.authors):
        return ""  # what this software recorded; `marin verify` looks at it too
    from marin.verify.agreement import contradiction

    return contradiction(root.history(), view.run)


def claimants(root: Root, view: Run) -> str:
    """Whose verdicts those are that are not this user's."""
    named = len(root.history().written.authors) > 0
    return ", ".join(dict.fromkeys(fact.actor for fact in view.claimed)) if named else ""


def _show_run(root: Root, view: Run) -> None:
    started, history = view.started.body, root.history()
    code, now = started.code, datetime.now(UTC)
    sign = underway(history, view, now)
    # A line that would say nothing is left out: most runs continue none, and nobody labelled or followed them.
    print_fields(
        [
            ("run", view.run),
            ("state", view.status if sign is None else f"{view.status}, {sign.sign_in_words(now)}"),
            ("started", view.started.time),
            *people(root, view),
            ("recipe", started.recipe_digest),
            ("plan", view.plan),
            ("code", f"{code.get('commit') or 'outside Git'}{' with changes' if code.get('dirty') else ''}"),
            *(
                [("continues", f"run {started.continues.run} before train step {started.continues.step}")]
                if started.continues is not None
                else []
            ),
            ("events", f"{view.started.index} to {view.last_index}"),
            *(sign.fields if sign is not None else []),
            ("verified", verdict(view, twin_of(root, view), by=claimants(root, view))),
            *([("contradicts itself", wrong)] if (wrong := _contradiction(root, view)) else []),
            *([("followed", age)] if (age := runs.followed(history, view, history.written.is_mine)) else []),
            *([("archived", "yes: lists leave it out")] if view.labels.archived else []),
            *([("description", view.labels.description)] if view.labels.description else []),
            *([("tags", tags_in_words(view.labels.tags))] if view.labels.tags else []),
            *([("registered", started.experiment)] if started.experiment else []),
        ]
    )
    say()
    # Asked of the whole log: a second execution elsewhere may have made other bits of the same step.
    differed = nondeterministic(history)
    rows = [
        (
            name,
            "reused" if step.cached else f"{step.seconds:.1f} s",
            step.output.kind,
            human_size(step.output.size),
            step.output.digest,
            MARK if step.identity in differed else "",
        )
        for name, step in view.steps.items()
    ]
    print_table(("step", "time", "kind", "size", "digest", ""), rows, empty="no step has a result yet")
    if view.metrics:
        say()
        print_fields([(name, number_text(value)) for name, value in view.metrics.items()])
    if texts := sampled_texts(root, view.run):
        say()
        print_table(("before step", "prompt", "what it said"), [(str(step), *rest) for step, *rest in texts], empty="")
    if view.segments:
        say()
        segments, drawn = [fact.body for fact in view.segments], rewards(history, view.run)
        first = segments[0].start
        told = [float.fromhex(one.losses[-1]) for one in segments]
        if drawn:
            told = [drawn[min(one.end - first, len(drawn)) - 1] for one in segments]
        print_table(
            ("train steps", "mean reward" if drawn else "train loss", "state after"),
            [
                (f"{one.start} to {one.end - 1}", f"{number:.4f}", one.end_state)
                for one, number in zip(segments, told, strict=True)
            ],
            empty="",
        )
    if rules := _moved_by(view):
        say()
        print_table(("moved by", "tensors", "which"), rows=rules, empty="")
    for preempted in view.preemptions:
        say()
        say(
            f"preempted at event {preempted.index}: {preempted.body.step}, attempt {preempted.body.attempt}, at train "
            f"step {preempted.body.at}: {preempted.body.reason}"
        )
    for fact in view.failures:
        say()
        ended = "interrupted" if was_interrupted(fact.body) else "failed"
        say(f"{ended} at event {fact.index}: {fact.body.step}: {fact.body.error}")
    # At the end, where a reader of a terminal looks first.
    quiet = sign is not None and sign.silent and not view.is_loop
    if view.status == "interrupted" or quiet or (sign is not None and not view.is_running):
        unsure = "" if sign is None or quiet else ", if nothing executes it any more"
        say(
            f"to go on{unsure}: the same command again (`dvc repro`, `marin train …`); what is recorded is not made again"
        )


def _moved_by(view: Run) -> list[tuple[str, str, str]]:
    """The parameters that each rule of an optimizer of matrices moves, as the newest training recorded them."""
    found = view.training[-1].body.program.get("optimizer_groups") if view.training else None
    if not isinstance(found, dict):
        return []
    groups = {str(name): list(map(str, paths)) for name, paths in sorted(found.items()) if isinstance(paths, list)}
    return [(name, str(len(paths)), ", ".join(paths)) for name, paths in groups.items()]


def show_data(root: Root, view: Run, step: int, *, as_json: bool) -> None:
    """What a train step saw, whether it was executed yet or not; of completions, once they are drawn."""
    if view.recipe.objective is not None:
        _show_completions(root, view, step, as_json=as_json)
        return
    from marin.training.inspection.batch import batch_of

    batch = batch_of(view, root.store(), step)
    if as_json:
        print_json({"run": view.run, **batch.describe()})
        return
    told = {None: "not recorded yet", batch.digest: "as recorded"}.get(batch.recorded, f"recorded was {batch.recorded}")
    print_fields([("run", view.run), ("train step", str(step)), ("batch", f"{batch.digest} ({told})")])
    for sequence in batch.sequences:
        first, last = sequence.documents
        documents = f"document {first}" if first == last else f"documents {first} to {last}"
        say()
        say(f"{sequence.part}, sequence {sequence.index}, {documents}, {len(sequence.tokens)} tokens")
        say(f"  ids   {' '.join(map(str, sequence.tokens))}")
        say(f"  text  {visible_json(sequence.text)}")


def _show_completions(root: Root, view: Run, step: int, *, as_json: bool) -> None:
    """What a train step of a run that learns from rewards saw: the first completion of its first prompts."""
    recipe = view.recipe
    (point,) = objective_plugins(recipe)
    batches = {fact.body.start + at: one for fact in view.segments for at, one in enumerate(fact.body.batches)}
    if step not in batches:
        raise UsageError(
            "no completions are recorded of this train step",
            where=f"--step {step}",
            expected=f"one of {len(batches)} that are recorded, from {recipe.first_step} on",
            found=str(step),
            cure=f"`marin show {view.run}` lists them; completions are known once they are drawn",
        )
    digest, store = batches[step], root.store()
    texts = load_plugin(*point, "objective").completion_texts(recipe, store, store.read(digest))
    if as_json:
        shown = [dict(zip(("prompt", "completion", "reward"), one, strict=True)) for one in texts]
        print_json({"run": view.run, "step": step, "digest": digest, "completions": shown})
        return
    print_fields([("run", view.run), ("train step", str(step)), ("completions", f"{digest} (`marin store get`: all)")])
    say()
    rows = [(visible_json(prompt), visible_json(text), reward) for prompt, text, reward in texts]
    print_table(("prompt", "completion", "reward"), rows, empty="no completion")


def _show_event(root: Root, name: str, *, as_json: bool) -> None:
    reader = root.reader()
    size = reader.checkpoint().size
    if name.isdigit():
        if int(name) >= size:
            raise UsageError(
                "no such event", where=name, expected=f"an index below {size}", found=name, cure="see `marin log`"
            )
        ((index, event),) = reader.events(int(name), int(name) + 1)
    else:
        wanted = name.removeprefix(EVENT_PREFIX)
        matching = [item for item in root.history().events() if item[1].id == wanted]
        if not matching:
            raise NotFound("no event has this id", where=wanted, cure="see `marin log --json`")
        index, event = matching[0]
    if as_json:
        print_json(describe(index, event))
    else:
        print_json(describe(index, event), indent=2)
