"""`marin generate`: what a recorded state says after a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.output import print_json, say
from marin.errors import UsageError

if TYPE_CHECKING:
    from marin.evaluation.scoring import Scorer
    from marin.evaluation.subject import Subject


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
@click.option(
    "--step",
    type=click.IntRange(min=0),
    metavar="N",
    help="The recorded state before this train step.  [default: the last]",
)
@click.option(
    "--replay",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Generate an answer of `marin serve` again, and compare every token.",
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
    as_json: bool,
) -> None:
    """Print what a recorded state of RUN says after a text, by the arithmetic contract of its recipe.

    RUN is an id, a unique beginning of one, or latest; or a Hugging Face FOLDER. The same state, prompt, temperature and
    seed give the same tokens on every machine of the contract. Nothing is recorded.

    With --replay an answer that `marin serve` gave is generated again: it says equal, or names the first token that differs
    (exit status 1).

    \b
    Examples:
      marin generate latest --prompt 'The dog'
      marin generate latest --prompt '' --temperature 0.8 --seed 7 --json
      marin generate latest --replay answer.json
    """
    if (prompt is None) == (replay is None):
        raise UsageError("what to say is named once", where="marin generate", expected="--prompt or --replay",
                         found="both" if replay else "neither")  # fmt: skip
    if replay is not None:
        _replay(run, step, replay, as_json)
        return
    assert prompt is not None
    subject, scorer = open_model(run, step)
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


def open_model(run: str, step: int | None, devices: int = 1) -> tuple[Subject, Scorer]:
    """A recorded state of ``run``, or the model of a Hugging Face folder, under its arithmetic contract."""
    from marin.evaluation.folder import folder_recipe, is_folder
    from marin.history.runs import load, resolve
    from marin.process.arithmetic import apply
    from marin.recipe.schema import Execution
    from marin.record.root import open_root

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
    from marin.evaluation.scoring import Scorer  # jax, after the contract is in force
    from marin.evaluation.subject import open_folder, open_subject

    if root is not None and view is not None:
        subject = open_subject(view, root.store_to_read(), step)
    else:
        subject = open_folder(Path(run), recipe)
    return subject, Scorer(subject.model, subject.recipe, devices=devices)


def _replay(run: str, step: int | None, file: Path, as_json: bool) -> None:
    from marin.serving.evidence import read_answer

    evidence, answer = read_answer(file.read_bytes(), str(file))
    subject, scorer = open_model(run, evidence.step if step is None and evidence.run is not None else step)
    from marin.serving.replay import replay

    found = replay(subject, scorer, evidence, answer)
    if as_json:
        print_json({"equal": found.difference is None, "state": subject.state, "tokens": found.tokens,
                    "logprobs": found.logprobs, "difference": found.difference})  # fmt: skip
    elif found.difference is None:
        say(f"equal: {found.tokens} tokens and {found.logprobs} log-likelihoods of state {subject.state}")
    else:
        told = ", ".join(f"{name} {value}" for name, value in found.difference.items())
        say(f"different: {told}")
    if found.difference is not None:
        raise SystemExit(1)
