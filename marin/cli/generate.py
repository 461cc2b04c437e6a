"""`marin generate`: what a recorded state says after a prompt."""

from __future__ import annotations

import click

from marin.cli.output import print_json, say


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--prompt", required=True, metavar="TEXT", help="What the model goes on from; may be empty.")
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the text.")
def generate(
    run: str, prompt: str, max_tokens: int, temperature: float, seed: int, step: int | None, as_json: bool
) -> None:
    """Print what a recorded state of RUN says after a text, by the arithmetic contract of its recipe.

    RUN is an id, a unique beginning of one, or latest. The same state, prompt, temperature and seed give the same tokens on
    every machine of the contract. Nothing is recorded.

    \b
    Examples:
      marin generate latest --prompt 'The dog'
      marin generate latest --prompt '' --temperature 0.8 --seed 7 --json
    """
    from marin.history.runs import load, resolve
    from marin.process.arithmetic import apply
    from marin.recipe.schema import Execution
    from marin.record.root import open_root

    root = open_root()
    history = root.history()
    view = load(history, resolve(history, run))
    apply(view.recipe.arithmetic, Execution(devices=1))
    from marin.evaluation import subject as subjects  # jax, after the contract is in force
    from marin.evaluation.scoring import Scorer

    subject = subjects.open_subject(view, root.store_to_read(), step)
    scorer = Scorer(subject.model, subject.recipe)
    said = subjects.generate(subject, scorer, prompt, limit=max_tokens, temperature=temperature, seed=seed)
    if not as_json:
        say(*said.text.split("\n"))
        return
    print_json(
        {
            "run": subject.run,
            "state": subject.state,
            "step": subject.step,
            "text": said.text,
            "tokens": list(said.tokens),
            "logprobs": list(said.logprobs),
            "temperature": temperature,
            "seed": seed,
        }
    )
