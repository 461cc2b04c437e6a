"""How long the first token of `marin serve` takes, and how many tokens come a second, beside how many others.

    python -m bench.models.serve [--size 1M] [--tokens 32]

Streams of sampled text after a prompt of 16 random tokens, over a real socket of the loopback interface; the default model
with its initial weights. `first` is the median time to the first piece of text, `same` the share of streams whose tokens are
those of the same request alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np

from bench.training.train_step import SIZES
from marin.recipe.schema import Execution, Recipe

VOCABULARY = 2048
ROW = "{streams:>8} {first:>12} {rate:>14} {same:>8}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=sorted(SIZES), default="1M")
    parser.add_argument("--tokens", type=int, default=32)
    asked = parser.parse_args()
    from marin.process.arithmetic import apply

    recipe = Recipe(model=SIZES[asked.size])
    apply(recipe.arithmetic, Execution(devices=1))
    measure(recipe, asked.tokens)


def measure(recipe: Recipe, count: int) -> None:
    """All rows."""
    import jax.random as jrandom
    import uvicorn
    from haliax import Axis
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    from marin.evaluation.scoring import Scorer
    from marin.evaluation.subject import Subject
    from marin.process.cache import compilation_cache
    from marin.process.listening import address_of, bind
    from marin.serving.app import Served
    from marin.serving.engine import Engine
    from marin.serving.server import configuration
    from marin.training.model import model_config
    from marin.training.runtime.compilation import use_compilation_cache

    use_compilation_cache(compilation_cache())
    words = {f"w{number} ": number for number in range(VOCABULARY)}
    model = model_config(recipe.model).build(Axis("vocab", VOCABULARY), key=jrandom.PRNGKey(0))
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0 "))  # noqa: S106
    subject = Subject("bench", recipe, model, tokenizer, f"sha256:{'0' * 64}", 0, f"sha256:{'0' * 64}")
    engine = Engine(Scorer(model, recipe))
    engine.start()
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(configuration(listener, Served(subject, engine, None, "bench", 0)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    draw = np.random.default_rng(1)
    prompts = [[int(token) for token in draw.integers(1, VOCABULARY, 16)] for _ in range(16)]
    try:
        alone = [stream(address_of(listener), prompt, count)[2] for prompt in prompts[:2]][:2]
        say(ROW.format(streams="streams", first="first", rate="tokens/s", same="same"))
        for streams in (1, 4, 16):
            began = time.perf_counter()
            with ThreadPoolExecutor(streams) as pool:
                told = list(pool.map(lambda prompt: stream(address_of(listener), prompt, count), prompts[:streams]))
            seconds = time.perf_counter() - began
            same = [one[2] == known for one, known in zip(told, alone, strict=False)]
            say(
                ROW.format(
                    streams=streams,
                    first=f"{statistics.median(one[0] for one in told) * 1000:.1f} ms",
                    rate=f"{sum(one[1] for one in told) / seconds:.0f}",
                    same=f"{sum(same) / len(same):.0%}",
                )
            )
    finally:
        server.should_exit = True
        thread.join()
        engine.end()
        listener.close()


def stream(address: str, prompt: list[int], count: int) -> tuple[float, int, Any]:
    """Seconds to the first text, number of tokens, and the tokens, of one request."""
    body = {"prompt": prompt, "max_tokens": count, "seed": 3, "stream": True}
    began, first, last = time.perf_counter(), 0.0, ""
    with httpx.stream("POST", f"{address}/v1/completions", json=body, timeout=600) as answer:
        for line in answer.iter_lines():
            first = first or (time.perf_counter() - began if '"text"' in line else 0.0)
            last = line.removeprefix("data: ") if '"marin"' in line else last
    tokens = json.loads(last)["marin"]["choices"][0]["tokens"]
    return first, len(tokens), tokens


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
