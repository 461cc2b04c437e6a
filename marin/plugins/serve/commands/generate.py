"""`marin generate`: what a recorded state says after a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ledger import digest_bytes
from marin.cli.execution import recorded_state
from marin.cli.options import FILE, THERE, argument, flag, option, takes
from marin.cli.output import print_json, say
from marin.errors import UsageError
from marin.process.text import several, short
from marin.training.runtime.unused import unused_imports

if TYPE_CHECKING:
    from marin.evaluation.scoring import Scorer
    from marin.evaluation.subject import Subject
    from marin.plugins.serve.files import GeneratedText, TextRequest


@dataclass(frozen=True)
class GenerateOptions:
    """What `marin generate` takes."""

    run: str = argument("RUN|FOLDER")
    prompt: str | None = option("TEXT", "What the model goes on from; may be empty.")
    max_tokens: int = option("N", "Most new tokens.", least=1, default=64, show_default=True)
    temperature: float = option(
        "T",
        "0 takes the likeliest token; another one draws.",
        type=click.FloatRange(min=0.0),
        default=0.0,
        show_default=True,
    )
    seed: int = option("S", "Of the draws.", least=0, default=0, show_default=True)
    step: int | None = recorded_state()
    replay: Path | None = option(
        "FILE", "Generate an answer of `marin serve` again, and compare every token.", type=THERE
    )
    prompts: Path | None = option(
        "FILE", "Rows with an instruction or a prompt: JSON lines, or a JSON list.", type=THERE
    )
    alpaca_eval: Path | None = option("OUT.json", "For --prompts: write outputs as AlpacaEval reads them.", type=FILE)
    helm: tuple[Path, Path] | None = option(
        "STATE.json OUT.json",
        "Answer the requests of HELM's scenario_state.json (`helm-run --dry-run`).",
        type=(click.Path(dir_okay=False, exists=True, path_type=Path), click.Path(dir_okay=False, path_type=Path)),
    )
    as_json: bool = flag("Print one JSON object instead of the text.", "--json")


@click.command()
@takes(GenerateOptions)
def generate(options: GenerateOptions) -> None:
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
    ways = {"prompt": options.prompt, "replay": options.replay, "prompts": options.prompts, "helm": options.helm}
    named = [f"--{name}" for name, value in ways.items() if value is not None]
    if len(named) != 1 or (options.prompts is None) != (options.alpaca_eval is None):
        raise UsageError(
            "what to say is named once",
            where="marin generate",
            expected="--prompt, --replay, --helm, or --prompts with --alpaca-eval",
            found=" and ".join(named) or "none",
        )
    if options.prompts is not None and options.alpaca_eval is not None:
        _answer_instructions(options, options.prompts, options.alpaca_eval)
        return
    if options.helm is not None:
        _answer_scenario(options, *options.helm)
        return
    if options.replay is not None:
        _replay(options, options.replay)
        return
    assert options.prompt is not None
    subject, scorer = model_of(options.run, options.step, alone=True)
    from marin.plugins.serve.commands import text

    limit, heat, seed, as_json = options.max_tokens, options.temperature, options.seed, options.as_json
    said = text.generate(subject, scorer, options.prompt, limit=limit, temperature=heat, seed=seed, logprobs=as_json)
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
            "temperature": heat,
            "seed": seed,
        }
    )


def model_of(run: str, step: int | None, devices: int = 1, *, alone: bool = False) -> tuple[Subject, Scorer]:
    """A recorded state of ``run``, or the model of a Hugging Face folder, under its arithmetic contract. ``alone``: for one
    answer, with which this process ends and of which nothing is recorded."""
    from marin.cli.models.local import local
    from marin.evaluation.folder import folder_recipe, is_folder
    from marin.history.runs import load, resolve
    from marin.process.arithmetic import apply
    from marin.process.cache import own_folder
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
    with unused_imports() if alone else nullcontext():
        from marin.evaluation.folder_subject import open_folder
        from marin.evaluation.programs import ProgramCache
        from marin.evaluation.scoring import Scorer  # jax, after the contract is in force
        from marin.evaluation.subject import open_subject

    if root is not None and view is not None:
        subject = open_subject(view, root.store_to_read(), step)
    else:
        subject = open_folder(Path(run), recipe)
    programs = ProgramCache(own_folder("programs"), subject.model, subject.recipe) if alone else None
    return subject, Scorer(subject.model, subject.recipe, devices=devices, programs=programs)


def _replay(options: GenerateOptions, file: Path) -> None:
    from marin.plugins.serve.evidence import read_answer

    evidence, answer = read_answer(file.read_bytes(), str(file))
    step = evidence.step if options.step is None and evidence.run is not None else options.step
    subject, scorer = model_of(options.run, step)
    from marin.plugins.serve.replay import replay

    found = replay(subject, scorer, evidence, answer)
    if options.as_json:
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


def _answer_instructions(options: GenerateOptions, file: Path, out: Path) -> None:
    subject, scorer = model_of(options.run, options.step)
    from marin.plugins.serve import files
    from marin.plugins.serve.chat import template_for

    rows = files.read_instructions(file)
    template = template_for(subject)
    stops = template.stops if template is not None else ()
    try:
        texts = [files.instruction_prompt(row["instruction"], template) for row in rows]
    except ValueError as error:
        raise UsageError("the chat template refuses an instruction", where=str(file), found=str(error)) from None
    wanted = files.numbered([files.TextRequest(text, options.max_tokens, options.temperature, stops) for text in texts])
    said = _generate_all(subject, scorer, wanted, options.seed)
    generator = f"marin:{subject.run or Path(options.run).resolve().name}:{short(subject.state)}"
    out.write_text(files.alpaca_eval(rows, said, generator), encoding="utf-8")
    _tell_file(out, subject, said, options)


def _answer_scenario(options: GenerateOptions, file: Path, out: Path) -> None:
    subject, scorer = model_of(options.run, options.step)
    from marin.plugins.serve import files

    state, wanted = files.read_scenario(file)
    said = _generate_all(subject, scorer, wanted, options.seed)
    out.write_text(files.helm(subject, state, said), encoding="utf-8")
    _tell_file(out, subject, said, options)


def _generate_all(subject: Subject, scorer: Scorer, wanted: Sequence[TextRequest], seed: int) -> list[GeneratedText]:
    from marin.plugins.serve.files import say_all
    from marin.process.progress import bar

    with bar("prompts", len(wanted)) as progress:
        return say_all(subject, scorer, wanted, seed, lambda count: progress(count, ""))


def _tell_file(out: Path, subject: Subject, said: Sequence[GeneratedText], options: GenerateOptions) -> None:
    cut = sum(one.lost > 0 for one in said)
    if options.as_json:
        about = {"path": str(out), "state": subject.state, "outputs": len(said), "truncated": cut, "seed": options.seed}
        print_json(about | {"digest": digest_bytes(out.read_bytes())})
    else:
        told = f"{several(len(said), 'outputs')} of state {subject.state}, {cut} prompts longer than the context"
        say(f"{out}: {told}; seed {options.seed}")
