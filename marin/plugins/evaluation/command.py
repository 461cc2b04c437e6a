"""`marin eval`: tasks of lm-evaluation-harness on a recorded state, as an event that anybody can check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from marin.cli.execution import on_devices, recorded_state
from marin.cli.options import FOLDER, argument, flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import print_table
from marin.errors import UsageError
from marin.plugins.evaluation.recorded.benchmark import benchmarks
from marin.process.text import several


def _benchmarks[F: Callable[..., object]](function: F) -> F:
    """An option for each benchmark."""
    for name, one in reversed(benchmarks().items()):
        path = click.Path(path_type=Path, file_okay=one.is_file, dir_okay=not one.is_file)
        metavar = "FILE" if one.is_file else "DIR"
        function = click.option(f"--{name}", name, type=path, metavar=metavar, help=one.help)(function)
    return function


@dataclass(frozen=True)
class EvalOptions:
    """What `marin eval` takes."""

    run: str = argument("RUN|FOLDER")
    named: str = option("NAME[,NAME]", "Tasks, tags or groups of --task-path.", "--tasks", default="")
    task_path: Path = option(
        "DIR",
        "Folder with task files of lm-evaluation-harness and their data.",
        type=FOLDER,
        default=Path("tasks"),
        show_default=True,
    )
    batch_size: int = option("N", "Never changes a bit.", least=1, default=16, show_default=True)
    devices: int = on_devices()
    limit: int | None = option("N", "The first N documents of each task.", least=1)
    num_fewshot: int | None = option("K", "Examples in each prompt.  [default: the task's]", least=0)
    seed: int = option("S", "Of few-shot and other draws.", least=0, default=1234, show_default=True)
    step: int | None = recorded_state()
    chat: bool = flag("Each prompt is a message of the user under the chat template.", "--apply_chat_template")
    multiturn: bool | None = option(
        "BOOL",
        "Each example is a question and an answer of its own there.  [default: with a template]",
        "--fewshot_as_multiturn",
        type=click.BOOL,
    )
    system: str | None = option(
        "TEXT",
        "Before everything else in each prompt; the system's message under a chat template.",
        "--system_instruction",
    )
    bootstrap: int = option(
        "N", "Resamples of a bootstrapped error.", "--bootstrap_iters", least=0, default=100_000, show_default=True
    )
    no_record: bool = flag("Print the numbers, and record nothing.")
    output_path: Path | None = option(
        "DIR", "Write the harness's own files: results.json, samples_NAME.jsonl.", "--output_path", type=FOLDER
    )
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command()
@takes(EvalOptions)
@_benchmarks
def eval(options: EvalOptions, **given: Path | None) -> None:
    """Evaluate a recorded state of RUN by tasks of lm-evaluation-harness, and record the numbers.

    RUN is an id, a unique beginning of one, or latest; of a Hugging Face FOLDER, or hf:OWNER/NAME@COMMIT of the Hub, the
    numbers are printed, and nothing is recorded. Every log-likelihood has the same bits for every batch size and number
    of devices. What is recorded names the state, the tasks with their data, every prompt and every token's
    log-likelihood; `marin verify RUN --only evaluation` computes all of it again. Needs the extra `evaluation`.

    \b
    Examples:
      marin eval latest --tasks blimp_anaphor --task-path tasks
      marin eval latest --tasks hellaswag,gsm8k --num-fewshot 5 --limit 100 --json
      marin eval latest --babylm evaluation_data/full_eval
    """
    run = options.run
    names = [name for name in (part.strip() for part in options.named.split(",")) if name]
    chosen = {name: path for name, path in given.items() if path is not None}
    # Options that contradict each other are refused before anything is imported: jax takes seconds.
    if len(chosen) > 1:
        both = " and ".join(f"--{name}" for name in chosen)
        raise UsageError("two benchmarks at once", where="marin eval", expected="one of them", found=both)
    benchmark = benchmarks()[next(iter(chosen))] if chosen else None
    if benchmark is not None and (options.num_fewshot is not None or options.chat or options.system is not None):
        raise UsageError(
            f"{benchmark.title}'s tasks have no examples and no messages",
            where=f"--{next(iter(chosen))}",
            expected="no --num-fewshot, --apply_chat_template or --system_instruction",
            found=str(next(iter(chosen.values()))),
        )
    if options.multiturn and not options.chat:
        raise UsageError(
            "turns without a chat template",
            where="--fewshot_as_multiturn",
            expected="--apply_chat_template beside it",
            found="none",
        )
    if options.system is not None and any("\ud800" <= sign <= "\udfff" for sign in options.system):
        raise UsageError(
            "a text that no record can hold",
            where="--system_instruction",
            expected="UTF-8",
            found=ascii(options.system)[:80],
        )
    if not names and benchmark is None:
        raise UsageError("no task is named", where="--tasks", expected="NAME[,NAME]", found=repr(options.named))
    if benchmark is None:
        from marin.plugins.evaluation.harness.installed import check_installed

        check_installed("marin eval")
    from ledger import Draft, describe_tree
    from marin.cli.models.local import local
    from marin.evaluation.folder import folder_recipe, is_folder
    from marin.history.runs import evaluation_stream, load, resolve
    from marin.kinds.families.measured import EVALUATION_RECORDED
    from marin.plugins.evaluation.harness.tasks import NamedTasks, read_named
    from marin.process.arithmetic import apply
    from marin.process.progress import bar
    from marin.recipe.schema import Execution
    from marin.record.events import write
    from marin.record.root import open_root

    if benchmark is None:
        asked = read_named(names, options.task_path)
    else:
        asked = NamedTasks(list(benchmark.read(next(iter(chosen.values())), names)), [], {})
    # A folder has no run: nothing of it is recorded, so a root is not asked for.
    root = view = None
    run = local(run)
    if is_folder(run):
        if options.step is not None:
            raise UsageError("a folder holds one state", where="--step", expected="a run with it", found=run)
        recipe = folder_recipe(Path(run))
    else:
        root = open_root()
        history = root.history()
        view = load(history, resolve(history, run))
        recipe = view.recipe
        if not options.no_record:
            root.check_writable()  # a copy of a root, or a missing key, is said before the work
    # The contract first, then whatever imports jax: it reads its settings once.
    apply(recipe.arithmetic, Execution(devices=options.devices))
    if benchmark is None:
        from marin.plugins.evaluation.harness.recording import evaluated
    else:
        evaluated = benchmark.load()
    from marin.evaluation.folder_subject import open_folder
    from marin.evaluation.scoring import Scorer
    from marin.evaluation.subject import open_subject
    from marin.plugins.evaluation.recorded.evaluated import numbers
    from marin.plugins.evaluation.recorded.records import (  # jax, after the contract is in force
        Settings,
        current_settings,
        write_tree,
    )

    if root is not None and view is not None:
        subject = open_subject(view, root.store_to_read(), options.step)
    else:
        subject = open_folder(Path(run), recipe)
    scorer = Scorer(subject.model, subject.recipe, devices=options.devices, ahead=options.batch_size)
    if benchmark is None:
        settings = current_settings(
            num_fewshot=options.num_fewshot,
            limit=options.limit,
            seed=options.seed,
            groups=asked.groups,
            chat=options.chat,
            multiturn=options.chat if options.multiturn is None else options.multiturn,
            system_instruction=options.system,
            bootstrap=options.bootstrap,
        )
    else:  # nothing of it is the harness's
        settings = Settings(limit=options.limit, seed=options.seed)
    with bar("requests", 0) as progress:
        found = evaluated(subject, scorer, asked.tasks, settings, progress=lambda done: progress(done, ""))
    # Bytes before the event that names them: a crash between the two leaves something to collect, and no event without its bytes.
    with TemporaryDirectory(prefix="marin-eval-") as base:
        folder = Path(base)
        write_tree(folder, asked.tasks, found.samples, numbers(found.results), asked.groups)
        recorded_in = None if options.no_record else root
        artifact = (recorded_in.store().put_tree(folder) if recorded_in is not None else describe_tree(folder)).digest
        body, event = found.body(subject, artifact), None
        if recorded_in is not None:
            (receipt,) = recorded_in.append([Draft(EVALUATION_RECORDED, evaluation_stream(subject.run), write(body))])
            event = receipt.index
        if options.output_path is not None:
            _write_files(options.output_path, found.files(body))
    if options.as_json:
        print_json(
            {
                "run": subject.run or None,
                "state": subject.state,
                "step": subject.step if subject.run else None,
                "results": found.results,
                "samples": artifact,
                "identity": body.identity,
                "requests": body.requests,
                "truncated": body.truncated,
                "harness": body.harness,
                "event": event,
            }
        )
        return
    rows = [
        [task, name, f"{value:.6g}" if isinstance(value, float) else str(value)]
        for task, metrics in found.results.items()
        for name, value in metrics.items()
        if "," in name
    ]
    print_table(("task", "metric", "value"), rows, empty="")
    say(
        f"{several(body.requests, 'requests')}, {body.truncated} of them longer than the context; state {subject.state}",
        err=True,
    )
    if event is not None:
        say(f"recorded as event {event}: check it with `marin verify {subject.run} --only evaluation`", err=True)


def _write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
