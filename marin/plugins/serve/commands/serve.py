"""`marin serve`: the OpenAI interface over a recorded state, on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.execution import on_devices, recorded_state
from marin.cli.options import FILE, argument, flag, option, takes
from marin.cli.output import say

if TYPE_CHECKING:
    from marin.evaluation.scoring import Scorer
    from marin.evaluation.subject import Subject

PORT = 8000


@dataclass(frozen=True)
class ServeOptions:
    """What `marin serve` takes."""

    run: str = argument("RUN|FOLDER")
    port: int = option(
        None,
        "Where to listen; the next free port if it is taken, any free one with 0.",
        type=click.IntRange(0, 65535),
        default=PORT,
        show_default=True,
    )
    host: str = option(
        None,
        "Where to listen; only this machine can reach the default. There is no login.",
        default="127.0.0.1",
        show_default=True,
    )
    step: int | None = recorded_state()
    devices: int = on_devices()
    queue: int = option(
        "N",
        "Sequences that may wait; beyond them a request is refused at once (429).",
        type=click.IntRange(min=1, max=100_000),
        default=256,
        show_default=True,
    )
    template_file: Path | None = option(
        "FILE", "A jinja2 template for chats.  [default: the model's own]", "--chat-template", type=FILE
    )
    vllm: bool = flag(
        "Of a FOLDER: print the command and the configuration with which vLLM serves it, and serve nothing."
    )
    check: str | None = option(
        "URL", "Compare log-likelihoods with a server that runs elsewhere (http://HOST:PORT/v1), and serve nothing."
    )
    within: float = option(
        "NATS",
        "For --check: how far apart they may be; exit status 1 beyond.",
        type=click.FloatRange(min=0.0),
        default=1e-3,
        show_default=True,
    )


@click.command()
@takes(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Serve a recorded state of RUN by the OpenAI interface: completions, chats, log-likelihoods, streams.

    RUN is an id, a unique beginning of one, or latest; a Hugging Face FOLDER, or hf:OWNER/NAME@COMMIT. An answer has the
    same bits whatever else is asked at the same time. It names the digest of the state and the seed, and
    `marin generate RUN --replay FILE` generates it again. The address is printed when it answers; SIGTERM and Ctrl-C
    finish what was asked.

    \b
    Examples:
      marin serve latest
      marin serve model/ --port 8080
      marin serve model/ --vllm
      marin serve model/ --check http://127.0.0.1:8001/v1
      curl http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' \\
        -d '{"prompt": "The dog", "max_tokens": 8, "seed": 7}'
    """
    run = options.run
    if options.vllm:
        _say_vllm(run)
        return
    from marin.cli.models.local import local
    from marin.plugins.serve.commands.generate import model_of

    given, run = run, local(run)
    subject, scorer = model_of(run, options.step, options.devices)
    if options.check is not None:
        _compare_with(
            subject, scorer, options.check, Path(run).resolve().name if not subject.run else subject.run, options.within
        )
        return
    # jax, after the contract is in force; the server's own libraries.
    import time

    from marin.evaluation.scoring import lengths
    from marin.plugins.serve.app import Served
    from marin.plugins.serve.chat import template_for
    from marin.plugins.serve.engine import Engine
    from marin.plugins.serve.server import serve as serve_on
    from marin.process.listening import address_of, bind
    from marin.process.progress import bar

    template = template_for(subject, options.template_file)
    engine = Engine(scorer, waiting=options.queue)
    with bar("programs", len(lengths(subject.recipe.model.seq_len))) as progress:
        engine.prepare(lambda number: progress(number, ""))
    engine.start()
    name = subject.run or Path(run).resolve().name
    listener = bind(options.host, options.port)
    try:
        served = Served(subject, engine, template, name, int(time.time()), (given, subject.state))

        def announce() -> None:
            say(f"{address_of(listener)}/v1", f"model {name}, state {subject.state}")

        serve_on(listener, served, announce=announce)
    finally:
        listener.close()


def _compare_with(subject: Subject, scorer: Scorer, url: str, name: str, within: float) -> None:
    from marin.errors import MarinError
    from marin.plugins.serve.beside import compare

    found = compare(scorer, subject.tokenizer.rows, url, name)
    say(f"{found.tokens} tokens in {found.sequences} sequences: furthest apart by {found.furthest:.3g} nats")
    if not found.furthest <= within:
        raise MarinError(
            "the other server's log-likelihoods are others",
            where=f"sequence {found.sequence}, token {found.token}",
            expected=f"at most {within:g} nats apart",
            found=f"{found.furthest:.6g}",
            cure="see that it serves the same folder in float32, with nothing put in front of a prompt",
        )


def _say_vllm(run: str) -> None:
    from marin.errors import UsageError
    from marin.evaluation.folder import folder_recipe, is_folder
    from marin.plugins.serve.vllm import as_yaml, command, configuration

    if not is_folder(run):
        raise UsageError(
            "vLLM serves a folder",
            where="--vllm",
            expected="a Hugging Face folder",
            found=run,
            cure=f"marin export {run} --hf model/ --card, then marin serve model/ --vllm",
        )
    folder = Path(run).resolve()
    found = configuration(folder, folder_recipe(folder), folder.name)
    say(command(found), "", "# the same as a file: vllm serve --config FILE", *as_yaml(found))
