"""`marin sample`: text from the model of a run, here and now."""

from __future__ import annotations

import click

from marin.cli.output import print_json, say
from marin.history.runs import load, resolve
from marin.record.root import open_root


@click.command()
@click.argument("run", default="latest")
@click.argument("prompt", default="")
@click.option("--tokens", type=click.IntRange(1), default=40, show_default=True, help="How many tokens at most.")
@click.option(
    "--temperature", type=click.FloatRange(0), default=0.8, show_default=True, help="0 takes the likeliest token."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Another one gives another text.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def sample(run: str, prompt: str, tokens: int, temperature: float, seed: int, as_json: bool) -> None:
    """Continue PROMPT by the trained model of RUN.

    RUN is an id, a unique beginning of one, or latest. The model's state is proven against its record first. The same
    prompt and seed give the same text on every machine.

    \b
    Examples:
      marin sample latest "The farmer"
      marin sample latest "The farmer" --tokens 80 --seed 1
      marin sample latest "The farmer" --temperature 0
    """
    from marin.library.model import continued, speaker, trained

    root = open_root()
    history = root.history()
    view = load(history, resolve(history, run))
    model, tokenizer = trained(view, root.store())
    programs = speaker(view, model)
    text = continued(view, programs, tokenizer, prompt, max_tokens=tokens, temperature=temperature, seed=seed)
    if as_json:
        print_json({"run": view.run, "prompt": prompt, "seed": seed, "temperature": temperature, "text": text})
        return
    say(text)
