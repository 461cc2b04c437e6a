"""`marin train`: a recipe by Hydra's grammar, through every step of the pipeline; ``-m`` for many of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import click

from marin.cli.execution import Machine, no_diff
from marin.cli.options import FILE, argument, flag, group, option, takes
from marin.cli.output import print_json, say
from marin.cli.running.trained import Trained, print_trained
from marin.cli.tables import print_table
from marin.execution.tracker import choose
from marin.process.text import several
from marin.process.waiting import waiting
from marin.record.root import Root, open_root

if TYPE_CHECKING:
    from marin.execution.forecast import Forecast
    from marin.recipe.composition import Composed
    from marin.recipe.objective import Judge
    from marin.recipe.schema import Execution, Recipe
    from marin.recipe.search import Plan


@dataclass(frozen=True)
class TrainOptions:
    """What `marin train` takes."""

    overrides: tuple[str, ...] = argument("[GROUP=NAME | KEY=VALUE]...", nargs=-1)
    multirun: bool = flag("A sweep: every combination of the values given, as in seed=1,2,3.", "-m", "--multirun")
    config_json: str | None = option("JSON|FILE", "Values as a JSON object: over the groups, under the command line.")
    force: bool = flag("Execute every step even if an equal result is recorded.")
    previous: str | None = option(
        "RUN", "Go on from the last recorded state of RUN, with its recipe and the changes given here.", "--continue"
    )
    begun: str | None = option(
        "FOLDER|hf:OWNER/NAME@COMMIT",
        "Begin with the model and the tokenizer of a Hugging Face folder, or of the Hub at a commit.",
        "--from",
    )
    borrowed: str | None = option(
        "FOLDER|hf:OWNER/NAME@COMMIT",
        "Take the tokenizer of a folder (tokenizer.json, GPT-2's two files, Llama 3's), or of the Hub at a commit.",
        "--tokenizer",
    )
    prompts: Path | None = option(
        "FILE", "With an objective: prompts and answers of your own, a JSON object a line.", type=FILE
    )
    reward: str | None = option(
        "FILE.py:NAME|run:RUN",
        "With an objective: a reward of your own, called as TRL calls it; or RUN's model as judge.",
    )
    max_concurrent: int | None = option("N", "Run at most N processes at a time.", least=1)
    machine: Machine = group(Machine)
    dry_run: bool = flag("Print for every step whether it is a hit, and what it would cost; run nothing.")
    device: str = option("NAME", "For --dry-run: a device of conf/prices.yaml.  [default: here]", default="here")
    metric: str = option(
        "STEP.NAME",
        "For a search (hydra/sweeper=optuna): what makes a trial the better one.",
        default="evaluate.loss",
        show_default=True,
    )
    as_json: bool = flag("Print one JSON object a run.", "--json")


@click.command()
@takes(TrainOptions)
@no_diff
def train(options: TrainOptions) -> None:
    """Compose a recipe from the groups in conf/ and run the whole pipeline on it.

    GROUP=NAME picks a file below conf/ (model, dataset, tokenizer, optimizer, trainer, profile, evaluation; a + before
    it is allowed), KEY=VALUE sets one value by its path, +KEY=VALUE a new one, ++KEY=VALUE any, ~KEY resets it to the
    recipe's default, ~KEY=VALUE only where it has this value. A mapping is merged, a list replaced. Later ones win:
    defaults of conf/config.yaml, groups, --config-json, values on the command line. Results that the ledger has are
    reused, no matter who made them.

    --continue starts from the recipe and the last recorded state of a run: trainer.num_steps is the length of the new
    phase, phase.schedule=continue keeps the learning rate's schedule.

    trainer.most_epochs lowers trainer.num_steps to what fits, once the tokens are counted.

    --from begins with a model that was made elsewhere, Llama, Qwen3 or GPT-2, or with profile=exact Mistral, OLMo 2, Mixtral or
    Qwen3-MoE: its sizes are the folder's (model.seq_len may be
    less), its tokenizer is kept as it is, and its bytes go into the store. With lora.rank=N only low-rank adapters are trained:
    what is exported is one model, and the adapters in a folder of it. With dataset=preferences what is
    learned is what people prefer (DPO).

    --tokenizer takes the place of training one: its bytes go into the store, and the ends of texts are those that it names.

    --prompts takes a file of lines {"prompt": ..., "answer": ...} in place of the shipped prompts of +objective=grpo, --reward a
    function of your own file in place of its reward (docs/rl.md).

    --dry-run with --device tpu-v5e, tpu-v5p or tpu-v6e asks the TPU's compiler, where libtpu is installed, for memory and time of
    a recipe with profile=tpu (as `marin compile` does); where not it says so, and keeps to the rule of conf/prices.yaml.

    tracker=wandb (or trainer.tracker=wandb) also writes an offline run of W&B while training runs; it is no part of
    the recipe and changes no bit.

    -m with hydra/sweeper=optuna searches instead of trying every combination: Hydra's plugin chooses the values of each
    trial from interval(...), choice(...), range(...). Every trial is an arm of one experiment, registered before it is
    trained; `marin experiment report` lists all of them. With --dry-run: what the first trial would cost, and as many
    times that as there are trials.

    Exit status: 0 done, 1 a run failed (those beside it are finished), 2 a group, a key or a value is wrong.

    \b
    Examples:
      marin train model=nano trainer=smoke
      marin train +model=gpt2-small +dataset=babylm_10M optimizer.learning_rate=1e-3 seed=1 --devices 2
      marin train model=nano seed=1,2,3 -m
      marin train -m model=nano hydra/sweeper=optuna hydra.sweeper.n_trials=12 'optimizer.learning_rate=interval(1e-4,1e-2)'
      marin train model=moe-nano optimizer=muonh profile=exact --devices 8
      marin train model=nano --devices 8 --pause-at 100     then on two:  marin train model=nano --devices 2
      marin train --continue latest optimizer.learning_rate=1e-4 trainer.num_steps=60
      marin train --from hf:OWNER/NAME@COMMIT +dataset=babylm_10M model.seq_len=256
      marin train --from base/ lora.rank=8 dataset=chat optimizer.learning_rate=1e-3
      marin train --from tuned/ dataset=preferences trainer.batch_size=16 arithmetic.microbatch_size=2
      marin train model=gpt2-small +dataset=babylm_10M --tokenizer gpt2/
      marin train model=gpt2-small trainer=long --dry-run --device h100
      marin train model=llama-135m profile=tpu 'arithmetic.device_kind=TPU v5 lite' --dry-run --device tpu-v5e --devices 8
    """
    overrides = options.overrides
    execution = options.machine.execution()
    from marin.process.arithmetic import check, check_devices
    from marin.recipe.composition import sweep
    from marin.recipe.form.schedule import too_long
    from marin.recipe.objective import check_verdict
    from marin.recipe.search import searches

    overrides = choose(overrides)
    root = open_root()
    base = None if options.previous is None else _recipe_of(root, options.previous)
    compose = partial(sweep, config_json=options.config_json, base=base)
    carry_out = partial(
        _train, root, execution=execution, force=options.force, max_concurrent=options.max_concurrent or 0
    )

    # What a recipe begins with comes first, then what is changed in that: a tokenizer of its own is refused for a model that
    # brings one.
    def planned(words: Sequence[str], *, several: bool) -> list[Composed]:
        asked_for = list(compose(words, several=several))
        found = asked_for
        found = found if options.previous is None else [_continued(root, options.previous, one) for one in found]
        found = found if options.begun is None else [_begun(root, options.begun, one, words) for one in found]
        _check_adapted(found)
        made = found if options.borrowed is None else [_borrowed(root, options.borrowed, one) for one in found]
        if options.prompts is not None or options.reward is not None:
            made = [_with_own(root, one, options.prompts, options.reward) for one in made]
        for one in made:
            check_verdict(
                one.recipe, where="recipe"
            )  # only now is it known who judges: --reward comes after the settings
        return [_log_template(one, composed) for one, composed in zip(made, asked_for, strict=True)]

    def ready(composed: Sequence[Composed]) -> list[Composed]:
        for one in composed:
            check(one.recipe, execution)
            _check_samplers(one.recipe, execution)
        return [within_epochs(root, _seeded(root, _gathered(root, one)), execution) for one in composed]

    if options.multirun and not options.dry_run and searches(overrides):
        from marin.cli.running.search import search_trials

        def trial(words: Sequence[str]) -> Composed:
            (one,) = ready(planned(words, several=False))
            return replace(one, overrides=tuple(words))

        search_trials(root, overrides, options.metric, trial, carry_out, json=options.as_json)
        return
    asked: Plan | None = None
    if options.multirun and searches(overrides):
        from marin.cli.running.search import planned_trial

        asked, first = planned_trial(overrides, options.metric)
        composed = [replace(one, overrides=first) for one in planned(first, several=False)]
    else:
        composed = planned(overrides, several=options.multirun)
    # Everything that could be refused is looked at for all recipes before the first of them is trained.
    with _where_data_comes_from(composed):
        if not options.dry_run:
            root.check_writable()
        for one in composed:
            check_devices(one.recipe, execution)
            _check_companions(root, one.recipe)
            if not options.dry_run and (words := too_long(one.recipe)):
                say(f"note: {'; '.join(words)}", err=True)
        if options.dry_run:
            _forecast(root, composed, options, execution, asked)
            return
        outcomes = carry_out(ready(composed))
    print_trained(root, outcomes, json=options.as_json, table=options.multirun)
    failed = [item for item in outcomes if item.failed]
    if failed:
        from marin.errors import StepFailed

        raise StepFailed(
            "not every run has its outputs",
            where=failed[0].failed,
            expected=several(len(outcomes), "runs"),
            found=failed[0].error + (f" and {len(failed) - 1} more" if failed[1:] else ""),
            cure="correct it and run the same command again: the rest is done",
        )


def _check_companions(root: Root, recipe: Recipe) -> None:
    """What goes along with a step (a measurement while it trains) finds what it needs; files of the corpus that are not there
    either are said first."""
    from marin.data.local import matched
    from marin.errors import DataMissing
    from marin.pipeline.stages import PIPELINE
    from marin.recipe.schema import FilesDataset, parts

    for step in PIPELINE.steps:
        if step.beside is None:
            continue
        try:
            step.beside.check(root, recipe)
        except DataMissing:
            for part in parts(recipe.dataset).values():
                if isinstance(part, FilesDataset):
                    matched(part.globs)
            raise


@contextmanager
def _where_data_comes_from(composed: Sequence[Composed]) -> Iterator[None]:
    """Data that is not there is said with the command that brings it, or the file that tells where to get it."""
    from marin.errors import DataMissing
    from marin.recipe.composition import conf_folder
    from marin.recipe.schema import FilesDataset, parts

    try:
        yield
    except DataMissing as error:
        if (error.where or "").startswith("evaluation."):  # a held-out set: what brings the data set does not bring it
            raise
        sets = {name: one for each in composed for name, one in parts(each.recipe.dataset).items()}
        globs = sorted({glob for one in sets.values() if isinstance(one, FilesDataset) for glob in one.globs})
        cures = [f"`marin data fetch {name}` brings it" for glob in globs if (name := _source_of(glob)) is not None]
        cures += [
            f"conf/dataset/{name}.yaml says where to get it"
            for name in sorted({*sets, *(each.recipe.dataset.name for each in composed)})
            if (conf_folder() / "dataset" / f"{name}.yaml").is_file()
        ]
        cure = "; ".join(filter(None, [error.cure, *cures[:1]]))
        raise DataMissing(
            error.what, where=error.where, expected=error.expected, found=error.found, cure=cure
        ) from error


def _source_of(glob: str) -> str | None:
    """The source of conf/sources that brings what lies there; None where none does."""
    from marin.data.pinned import read_source
    from marin.recipe.composition import conf_folder

    parts = PurePosixPath(glob).parts
    for file in sorted((conf_folder() / "sources").glob("*.yaml")):
        source = read_source(file)
        into = PurePosixPath(source.into)
        places = {into / one.unpack if one.unpack is not None else into for one in source.files} - {PurePosixPath()}
        if any(parts[: len(place.parts)] == place.parts for place in places):
            return file.stem
    return None


def _recipe_of(root: Root, run: str) -> dict[str, Any]:
    """The recipe of a run, as values that a command line may change."""
    import msgspec

    from marin.history import runs

    history = root.history()
    values: dict[str, Any] = msgspec.to_builtins(runs.load(history, runs.resolve(history, run)).recipe)
    for beginning in ("phase", "initial"):  # a phase begins with the state of the run
        values.pop(beginning, None)
    return values


def _check_adapted(composed: Sequence[Composed]) -> None:
    """Refuse adapters of a model that nothing has trained."""
    from marin.errors import UsageError

    if any(one.recipe.lora is not None and one.recipe.initial is None and one.recipe.phase is None for one in composed):
        raise UsageError(
            "adapters without a model that they adapt",
            where="lora",
            expected="--from FOLDER beside it",
            found="a model with random weights",
            cure="marin export RUN --hf base/, then --from base/",
        )


def _seeded(root: Root, composed: Composed) -> Composed:
    """The recipe with the seed that was drawn for it, where it says ``seed: null``."""
    from marin.execution.seeds import with_seed

    return replace(composed, recipe=with_seed(root, composed.recipe))


def _gathered(root: Root, composed: Composed) -> Composed:
    """The recipe with the collection that its sources give, where it names sources."""
    from marin.pipeline.gathering import with_documents

    return replace(composed, recipe=with_documents(root, composed.recipe))


def within_epochs(root: Root, composed: Composed, execution: Execution) -> Composed:
    """The recipe with as many train steps as it says, or as ``trainer.most_epochs`` lets it have: its tokens are made for that,
    and found again by the training. What it can have none of is for the training to refuse, or for the step that fails."""
    recipe = composed.recipe
    if recipe.trainer.most_epochs is None:
        return composed
    from msgspec.structs import replace as with_values

    from marin.execution.tracker import untracked
    from marin.graph.execution.loop import Options, execute_graph
    from marin.graph.recipes import pipeline_graph

    graph, (steps,) = pipeline_graph([recipe], ("tokens",))
    with untracked():
        made = execute_graph(graph, root, options=Options(execution=execution)).results.get(steps["tokens"])
    most = None if made is None else recipe.most_steps(int(made.metrics["train_tokens"]))
    if not most or most >= recipe.trainer.num_steps:
        return composed
    say(
        f"trainer.num_steps={most} in place of {recipe.trainer.num_steps}: {recipe.trainer.most_epochs} epochs",
        err=True,
    )
    return replace(composed, recipe=with_values(recipe, trainer=with_values(recipe.trainer, num_steps=most)))


def _continued(root: Root, run: str, composed: Composed) -> Composed:
    """The recipe as the phase that goes on from the last recorded state of ``run``."""
    from tempfile import TemporaryDirectory

    from marin.evaluation.importing import with_chat_template
    from marin.execution.phases import next_phase
    from marin.recipe.schema import chats

    recipe = next_phase(root, run, composed.recipe)
    if any(part.chat_template is None for part in chats(recipe.dataset)) and recipe.kept_tokenizer is not None:
        with TemporaryDirectory(prefix="marin-tokenizer-") as base:
            root.store().checkout(recipe.kept_tokenizer, Path(base) / "tokenizer")
            recipe = with_chat_template(recipe, Path(base) / "tokenizer")
    return replace(composed, recipe=recipe)


def _log_template(made: Composed, asked: Composed) -> Composed:
    """``made``, and a word where its conversations have a template that ``asked`` did not name."""
    from marin.recipe.schema import chats

    if any(part.chat_template is None for part in chats(asked.recipe.dataset)) and any(
        part.chat_template is not None for part in chats(made.recipe.dataset)
    ):
        say("dataset.chat_template: the one that comes with the tokenizer", err=True)
    return made


def _begun(root: Root, named: str, composed: Composed, words: Sequence[str]) -> Composed:
    """The recipe that begins with the model of a folder; ``words`` are what the command line says beside it."""
    from dataclasses import replace

    import msgspec

    from marin.cli.models.local import local
    from marin.errors import UsageError
    from marin.evaluation.folder import folder_recipe
    from marin.evaluation.importing import imported

    if composed.recipe.phase is not None:
        raise UsageError("a training has one beginning", where="--from", expected="no --continue", found=named)
    folder = Path(local(named))
    told = folder_recipe(folder)
    model, given = told.model, {one.partition("=")[0].lstrip("+~") for one in words}
    allowed = {"model.seq_len", "model.gradient_checkpointing"}
    if odd := sorted(one for one in given if one.split(".")[0] == "model" and one not in allowed):
        raise UsageError(
            "the model's sizes are the folder's",
            where="--from",
            expected=f"only {', '.join(sorted(allowed))}",
            found=odd[0],
            cure=f"leave {odd[0]} out",
        )
    asked = composed.recipe.model
    if "model.seq_len" in given:
        if model.architecture == "gpt2" or asked.seq_len > model.seq_len:
            raise UsageError(
                "a context that this model does not have",
                where="model.seq_len",
                expected=f"{model.seq_len}" + (" or less" if model.architecture == "llama" else ""),
                found=str(asked.seq_len),
            )
        model = msgspec.structs.replace(model, seq_len=asked.seq_len)
    model = msgspec.structs.replace(model, gradient_checkpointing=asked.gradient_checkpointing)
    name = named if named.startswith("hf:") else f"folder {folder.resolve().name}"
    return replace(
        composed,
        recipe=imported(root.store(), folder, name, msgspec.structs.replace(told, model=model), composed.recipe),
    )


def _borrowed(root: Root, named: str, composed: Composed) -> Composed:
    """The recipe with the tokenizer of a folder."""
    from marin.data.borrowed.folder import WANTED
    from marin.errors import UsageError
    from marin.evaluation.importing import with_tokenizer
    from marin.export.hub import is_named, pull
    from marin.process.cache import own_folder

    if composed.recipe.phase is not None or composed.recipe.initial is not None:
        raise UsageError(
            "a model that knows its tokens keeps its tokenizer",
            where="--tokenizer",
            expected="neither --continue nor --from",
            found=named,
            cure="leave --tokenizer out",
        )
    folder = pull(named, own_folder("hub"), WANTED, "tokenizer") if is_named(named) else Path(named)
    name = named if is_named(named) else f"folder {folder.resolve().name}"
    return replace(composed, recipe=with_tokenizer(root.store(), folder, name, composed.recipe))


def _check_samplers(recipe: Recipe, execution: Execution) -> None:
    """Refuse processes that would have nothing to draw."""
    from marin.errors import UsageError

    if execution.samplers and recipe.objective is None:
        raise UsageError(
            "processes that draw completions, where none are learned",
            where="--samplers",
            expected="an objective",
            found="none",
            cure="+objective=grpo, or leave it out",
        )


def _with_own(root: Root, composed: Composed, prompts: Path | None, reward: str | None) -> Composed:
    """The recipe with the prompts and the reward of a user's files."""
    from msgspec.structs import replace as with_values

    from marin.provenance.plugins import load_plugin
    from marin.recipe.objective import OBJECTIVES

    plugin, recipe = load_plugin(OBJECTIVES, "rl", "--prompts" if reward is None else "--reward"), composed.recipe
    if reward is not None and reward.startswith("run:") and recipe.objective is not None:
        judged = with_values(recipe.objective, reward="judge", judge=_judge(root, recipe, reward))
        recipe, reward = with_values(recipe, objective=judged), None
    return replace(composed, recipe=plugin.with_own(root.store(), recipe, prompts, reward))


def _judge(root: Root, recipe: Recipe, reward: str) -> Judge:
    """The last state of the run that ``run:RUN`` names, which has to know the same tokens."""
    from marin.errors import UsageError
    from marin.execution.phases import last_checkpoint
    from marin.history import runs
    from marin.recipe.objective import Judge

    history, phase = root.history(), recipe.phase
    view = runs.load(history, runs.resolve(history, reward.removeprefix("run:")))
    theirs = view.recipe
    if phase is not None and phase.tokenizer is not None:
        same = phase.tokenizer == view.output("tokenizer").digest
    else:
        same = (theirs.dataset, theirs.tokenizer) == (recipe.dataset, recipe.tokenizer)
    if not same or theirs.model != recipe.model:
        raise UsageError(
            "a judge that reads other tokens, or has another shape",
            where=f"--reward {reward}",
            expected="a run with this recipe's model and tokenizer",
            found=f"run {view.run}",
            cure="name a run that this one continues, or one of its beginning",
        )
    saved = last_checkpoint(view, root.store())
    return Judge(state=saved.state, artifact=saved.artifact)


def _train(
    root: Root, composed: Sequence[Composed], *, execution: Execution, force: bool, max_concurrent: int
) -> list[Trained]:
    """Everything through the graph executor: in parallel as far as the machine allows, what is known reused."""
    with waiting("loading what executes graphs"):
        from marin.graph.execution.loop import Options, execute_graph
        from marin.graph.recipes import pipeline_graph
        from marin.history import runs
        from marin.history.table.varied import key_differences
        from marin.recipe.schema import digest, recorded

    together = {digest(one.recipe): recorded(one.recipe) for one in composed}
    graph, addresses = pipeline_graph([one.recipe for one in composed])
    outcome = execute_graph(
        graph,
        root,
        options=Options(
            force=force,
            max_concurrent=max_concurrent,
            execution=execution,
            sweep=list(together) if len(together) > 1 else (),
            varied=key_differences(together).keys,
        ),
    )
    history = root.history()
    trained = []
    for one, steps in zip(composed, addresses, strict=True):
        wanted = digest(one.recipe)
        runs_of_it = [fact.body.run for fact in runs.started_runs(history, recipe=wanted)]
        results = {name: outcome.results[at] for name, at in steps.items() if at in outcome.results}
        failure = next((outcome.failures[at] for at in steps.values() if at in outcome.failures), None)
        trained.append(
            Trained(
                overrides=one.overrides,
                recipe_digest=wanted,
                run=runs.load(history, runs_of_it[-1]) if runs_of_it else None,
                steps={name: item.action for name, item in results.items()},
                metrics={
                    f"{name}.{key}": value for name, item in results.items() for key, value in item.metrics.items()
                },
                failed=failure.address if failure is not None and not failure.paused else "",
                error=failure.error if failure is not None and not failure.paused else "",
                paused=failure.error if failure is not None and failure.paused else "",
                sweep=outcome.graph if outcome.event >= 0 and len(together) > 1 else "",
            )
        )
    return trained


def _forecast(
    root: Root, composed: Sequence[Composed], options: TrainOptions, execution: Execution, asked: Plan | None
) -> None:
    """What each recipe would do and cost; of a search (``asked``) the first trial, and as many times that as there are
    trials."""
    from marin.execution.forecast import forecast
    from marin.execution.plan import code_identity
    from marin.history import runs
    from marin.history.measured import measurements
    from marin.pipeline.stages import PIPELINE
    from marin.provenance.code import code_folder
    from marin.provenance.plugins import load_plugins
    from marin.recipe.composition import PRICES, conf_folder
    from marin.recipe.cost import load_prices, totals
    from marin.recipe.form.schedule import in_words, schedule_of
    from marin.recipe.schema import digest

    history, prices = root.history(), load_prices(conf_folder() / PRICES)
    device = options.device
    prices.device(device)
    measured = measurements(history)
    on = {"devices": execution.devices, "slices": execution.slices}
    against = runs.resolve(history, options.previous) if options.previous is not None else ""
    everything: list[Forecast] = []
    for one in composed:
        code = code_identity(PIPELINE, code_folder(), one.recipe)
        found = forecast(
            PIPELINE, one.recipe, code, history, root.store(), prices, measured, device=device, against=against, **on
        )
        compiled, told = None, ""
        # A plugin may know better than the rule of conf/prices.yaml: a compiler that says what the program would take.
        for _, refine in load_plugins("marin.forecasts"):
            found, compiled, told = refine(found, one.recipe, prices, device, **on)
        everything += found
        if options.as_json:
            print_json(
                {
                    "overrides": list(one.overrides),
                    "recipe_digest": digest(one.recipe),
                    "steps": [item.as_json() for item in found],
                    "total": totals(item.estimate for item in found).as_json(),
                    "prices": str(prices.date),
                    "schedule": asdict(schedule_of(one.recipe)),
                    **({"compiled": compiled} if compiled is not None else {}),
                    **({"search": _searched(asked, everything)} if asked is not None else {}),
                }
            )
            continue
        if len(composed) > 1:
            say(f"{' '.join(one.overrides)}")
        _table(found)
        say(in_words(one.recipe))
        if told:
            say(told)
        say()
    if not options.as_json:
        line = prices.device(device)
        total = totals(item.estimate for item in everything)
        hits = sum(item.action == "hit" for item in everything)
        say(
            f"{hits} of {len(everything)} steps are hits. {device}: {line.note}; {line.hourly:g} {prices.currency} an "
            f"hour, seen {line.seen}."
        )
        if len(composed) > 1:
            say(_together(composed, everything))
        if asked is not None:
            whole = _searched(asked, everything)
            time, price = ("unknown" if whole[name] is None else whole[name] for name in ("time", "price"))
            say(
                f"A search of {asked.trials} trials, {asked.at_once} at a time, by {asked.sampler}; this is the first: "
                f"{' '.join(word for word in composed[0].overrides if word not in asked.fixed)}. The others are chosen by "
                f"results. {asked.trials} times it: {whole['flops']:.2e} FLOPs, {time}, {price}; less where trials share "
                f"steps, other where what is searched changes the cost."
            )
        if not total.fits:
            say(f"note: not everything fits into {device}'s memory", err=True)


def _together(composed: Sequence[Composed], found: Sequence[Forecast]) -> str:
    """What a sweep costs: a step that several of its recipes share is executed once."""
    from marin.graph.recipes import pipeline_graph
    from marin.recipe.cost import in_words, totals

    _, addresses = pipeline_graph([one.recipe for one in composed])
    once: dict[str, Forecast] = {}
    each = len(found) // len(composed)
    for place, item in enumerate(found):
        once.setdefault(addresses[place // each][item.step], item)
    words = in_words(totals(item.estimate for item in once.values()))
    parts = [f"{words['flops']} FLOPs" if words["flops"] else "", words["bytes"], words["time"], words["price"]]
    runs = sum(item.action == "run" for item in once.values())
    return (
        f"all {len(composed)} recipes: {runs} of {len(once)} different steps to run, {', '.join(filter(None, parts))}"
    )


def _searched(asked: Plan, first: Sequence[Forecast]) -> dict[str, Any]:
    """A search, and its cost if every trial cost what the first does."""
    from marin.recipe.cost import totals
    from marin.recipe.units import human_time

    one = totals(item.estimate for item in first)
    seconds, price = ((None if value is None else value * asked.trials) for value in (one.seconds, one.price))
    return {
        "experiment": asked.name,
        "trials": asked.trials,
        "at_once": asked.at_once,
        "sampler": asked.sampler,
        "flops": one.flops * asked.trials,
        "seconds": seconds,
        "time": None if seconds is None else human_time(seconds),
        "price": None if price is None else f"{price:.2f} {one.currency}",
    }


def _table(found: Sequence[Forecast]) -> None:
    from marin.recipe.cost import in_words, totals

    rows: list[tuple[str, ...]] = []
    for item in found:
        if item.action == "hit":
            rows.append((item.step, "hit", "", "", "", "", "", item.why))
            continue
        words = in_words(item.estimate)
        memory = words["memory"] + ("" if item.estimate.fits else " (too much)")
        rows.append(
            (
                item.step,
                "run",
                words["flops"],
                memory,
                words["bytes"],
                words["time"],
                words["price"],
                f"{item.why}; {item.estimate.basis}",
            )
        )
    whole = in_words(totals(item.estimate for item in found))
    rows.append(("total", "", whole["flops"], whole["memory"], whole["bytes"], whole["time"], whole["price"], ""))
    print_table(("step", "", "FLOPs", "memory", "writes", "time", "price", "why"), rows, empty="")
