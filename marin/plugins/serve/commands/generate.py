"""`marin generate`: what a recorded state says after a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger import digest_bytes
from marin.cli.execution import recorded_state
from marin.cli.output import print_json, say
from marin.errors import UsageError
from marin.process.text import several, short

if TYPE_CHECKING:
    from marin.evaluation.scoring import Scorer
    from marin.evaluation.subject import Subject
    from marin.plugins.serve.files import Said, Wanted


@click.command()
@click.argument("run", metavar="RUN|FOLDER")
@click.option("--prompt", metavar="TEXT", help="What the model goes on from; may be empty.")
@click.option(
    "--max-tokens", type=click.IntRange(min=1), default=64, show_default=True, metavar="N", help="Most new tokens."
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0.0),
    default=0.0,
    show_default=True,
    metavar="T",
    help="0 takes the likeliest token; another one draws.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="S", help="Of the draws.")
@recorded_state
@click.option(
    "--replay",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Generate an answer of `marin serve` again, and compare every token.",
)
@click.option(
    "--prompts",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    metavar="FILE",
    help="Rows with an instruction or a prompt: JSON lines, or a JSON list.",
)
@click.option(
    "--alpaca-eval",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="OUT.json",
    help="For --prompts: write outputs as AlpacaEval reads them.",
)
@click.option(
    "--helm",
    type=(click.Path(dir_okay=False, exists=True, path_type=Path), click.Path(dir_okay=False, path_type=Path)),
    metavar="STATE.json OUT.json",
    help="Answer the requests of HELM's scenario_state.json (`helm-run --dry-run`).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the text.")
def generate(
    run: str,
    prompt: str | None,
    max_tokens: int,
    temperature: float,
    seed: int,
    step: int | None,
    replay: Path | None,
    prompts: Path | None,
    alpaca_eval: Path | None,
    helm: tuple[Path, Path] | None,
    as_json: bool,
) -> None:
    """Print what a recorded state of RUN says after a text, by the arithmetic contract of its recipe.

    RUN is an id, a unique beginning of one, or latest; a Hugging Face FOLDER, or hf:OWNER/NAME@COMMIT. The same state,
    prompt, temperature and seed give the same tokens on every machine of the contract. Nothing is recorded.

    With --replay an answer that `marin serve` gave is generated again: it says equal, or names the first token that differs
    (exit status 1).

    \b
    Examples:
      marin generate latest --prompt 'The dog'
      marin generate latest --prompt '' --temperature 0.8 --seed 7 --json
      marin generate latest --replay answer.json
      marin generate latest --prompts alpaca_eval.json --alpaca-eval outputs.json --max-tokens 512
      marin generate latest --helm scenario_state.json answered/scenario_state.json
    """
    named = [
        name
        for name, value in (("--prompt", prompt), ("--replay", replay), ("--prompts", prompts), ("--helm", helm))
        if value is not None
    ]
    if len(named) != 1 or (prompts is None) != (alpaca_eval is None):
        raise UsageError(
            "what to say is named once",
            where="marin generate",
            expected="--prompt, --replay, --helm, or --prompts with --alpaca-eval",
            found=" and ".join(named) or "none",
        )
    if prompts is not None and alpaca_eval is not None:
        _answer_instructions(run, step, prompts, alpaca_eval, max_tokens, temperature, seed, as_json)
        return
    if helm is not None:
        _answer_scenario(run, step, *helm, seed, as_json)
        return
    if replay is not None:
        _replay(run, step, replay, as_json)
        return
    assert prompt is not None
    subject, scorer = model_of(run, step)
    from marin.evaluation import subject as subjects

    said = subjects.generate(subject, scorer, prompt, limit=max_tokens, temperature=temperature, seed=seed)
    if not as_json:
        say(*said.text.split("\n"))
        return
    print_json(
        {
            "run": subject.run or None,
            "state": subject.state,
            "step": subject.step if subject.run else None,
            "text": said.text,
            "tokens": list(said.tokens),
            "logprobs": list(said.logprobs),
            "temperature": temperature,
            "seed": seed,
        }
    )


def model_of(run: str, step: int | None, devices: int = 1) -> tuple[Subject, Scorer]:
    """A recorded state of ``run``, or the model of a Hugging Face folder, under its arithmetic contract."""
    from marin.cli.models.local import local
    from marin.evaluation.folder import folder_recipe, is_folder
    from marin.history.runs import load, resolve
    from marin.process.arithmetic import apply
    from marin.recipe.schema import Execution
    from marin.record.root import open_root

    run = local(run)
    folder, root, view = is_folder(run), None, None
    if folder:
        if step is not None:
            raise UsageError("a folder holds one state", where="--step", expected="a run with it", found=run)
        recipe = folder_recipe(Path(run))
    else:
        root = open_root()
        history = root.history()
        view = load(history, resolve(history, run))
        recipe = view.recipe
    apply(recipe.arithmetic, Execution(devices=devices))
    from marin.evaluation.folder_subject import open_folder
    from marin.evaluation.scoring import Scorer  # jax, after the contract is in force
    from marin.evaluation.subject import open_subject

    if root is not None and view is not None:
        subject = open_subject(view, root.store_to_read(), step)
    else:
        subject = open_folder(Path(run), recipe)
    return subject, Scorer(subject.model, subject.recipe, devices=devices)


def _replay(run: str, step: int | None, file: Path, as_json: bool) -> None:
    from marin.plugins.serve.evidence import read_answer

    evidence, answer = read_answer(file.read_bytes(), str(file))
    subject, scorer = model_of(run, evidence.step if step is None and evidence.run is not None else step)
    from marin.plugins.serve.replay import replay

    found = replay(subject, scorer, evidence, answer)
    if as_json:
        print_json(
            {
                "equal": found.difference is None,
                "state": subject.state,
                "tokens": found.tokens,
                "logprobs": found.logprobs,
                "difference": found.difference,
            }
        )
    elif found.difference is None:
        say(f"equal: {found.tokens} tokens and {found.logprobs} log-likelihoods of state {subject.state}")
    else:
        told = ", ".join(f"{name} {value}" for name, value in found.difference.items())
        say(f"different: {told}")
    if found.difference is not None:
        raise SystemExit(1)


def _answer_instructions(
    run: str, step: int | None, file: Path, out: Path, limit: int, temperature: float, seed: int, as_json: bool
) -> None:
    subject, scorer = model_of(run, step)
    from marin.plugins.serve import files
    from marin.plugins.serve.chat import template_for

    rows = files.read_instructions(file)
    template = template_for(subject)
    stops = template.stops if template is not None else ()
    try:
        texts = [files.instruction_prompt(row["instruction"], template) for row in rows]
    except ValueError as error:
        raise UsageError("the chat template refuses an instruction", where=str(file), found=str(error)) from None
    wanted = files.numbered([files.Wanted(text, limit, temperature, stops) for text in texts])
    said = _generate_all(subject, scorer, wanted, seed)
    generator = f"marin:{subject.run or Path(run).resolve().name}:{short(subject.state)}"
    out.write_text(files.alpaca_eval(rows, said, generator), encoding="utf-8")
    _tell_file(out, subject, said, seed, as_json)


def _answer_scenario(run: str, step: int | None, file: Path, out: Path, seed: int, as_json: bool) -> None:
    subject, scorer = model_of(run, step)
    from marin.plugins.serve import files

    state, wanted = files.read_scenario(file)
    said = _generate_all(subject, scorer, wanted, seed)
    out.write_text(files.helm(subject, state, said), encoding="utf-8")
    _tell_file(out, subject, said, seed, as_json)


def _generate_all(subject: Subject, scorer: Scorer, wanted: Sequence[Wanted], seed: int) -> list[Said]:
    from marin.plugins.serve.files import say_all
    from marin.process.progress import bar

    with bar("prompts", len(wanted)) as progress:
        return say_all(subject, scorer, wanted, seed, lambda count: progress(count, ""))


def _tell_file(out: Path, subject: Subject, said: Sequence[Said], seed: int, as_json: bool) -> None:
    cut = sum(one.lost > 0 for one in said)
    if as_json:
        print_json(
            {
                "path": str(out),
                "state": subject.state,
                "outputs": len(said),
                "truncated": cut,
                "seed": seed,
                "digest": digest_bytes(out.read_bytes()),
            }
        )
    else:
        say(
            f"{out}: {several(len(said), 'outputs')} of state {subject.state}, {cut} prompts longer than the context; seed {seed}"
        )
