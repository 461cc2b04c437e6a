"""`marin sample`: text from the model of a run, here and now."""

from __future__ import annotations

from dataclasses import dataclass

import click

from marin.cli.options import argument, flag, option, takes
from marin.cli.output import print_json, say
from marin.history.runs import load, resolve
from marin.record.root import open_root
from marin.training.runtime.unused import unused_imports


@dataclass(frozen=True)
class SampleOptions:
    """What `marin sample` takes."""

    run: str = argument(default="latest")
    prompt: str = argument(default="")
    tokens: int = option(None, "How many tokens at most.", least=1, default=40, show_default=True)
    temperature: float = option(
        None, "0 takes the likeliest token.", type=click.FloatRange(0), default=0.8, show_default=True
    )
    seed: int = option(None, "Another one gives another text.", type=int, default=0, show_default=True)
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command()
@takes(SampleOptions)
def sample(options: SampleOptions) -> None:
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
    view = load(history, resolve(history, options.run))
    model, tokenizer = trained(view, root.store(), unused_imports)
    programs = speaker(view, model)
    asked, heat = options.prompt, options.temperature
    text = continued(view, programs, tokenizer, asked, max_tokens=options.tokens, temperature=heat, seed=options.seed)
    if options.as_json:
        print_json({"run": view.run, "prompt": asked, "seed": options.seed, "temperature": heat, "text": text})
    else:
        say(text)
