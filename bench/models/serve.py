"""How long the first token of `marin serve` takes, and how many tokens come a second, beside how many others.

    python -m bench.models.serve [--size 1M] [--tokens 32] [--beside PYTHON]

Streams of sampled text after a prompt of 16 random tokens, over a real socket of the loopback interface; the default model
with its initial weights. `first` is the median time to the first piece of text, `same` the share of streams whose tokens are
those of the same request alone. PYTHON is an interpreter of an environment of its own with torch and transformers, which are
no dependency here: its `generate` makes as many tokens, in one batch and without a socket, of a model of the same shape.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np

from bench.training.train_step import SIZES
from marin.recipe.schema import Execution, Model, Recipe

VOCABULARY = 2048
PEER = """
import json, sys, time
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.generation.streamers import BaseStreamer
asked = json.load(sys.stdin)
model = LlamaForCausalLM(LlamaConfig(**asked["config"])).eval()
class Clock(BaseStreamer):
    def __init__(self): self.times = []
    def put(self, value): self.times.append(time.perf_counter())
    def end(self): pass
def rows(streams, streamer=None):
    prompt = torch.randint(1, asked["config"]["vocab_size"], (streams, asked["prompt"]))
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=True, max_new_tokens=asked["tokens"],
                          min_new_tokens=asked["tokens"], streamer=streamer)
rows(1)
told = []
for streams in asked["streams"]:
    began = time.perf_counter()
    assert rows(streams).shape[1] == asked["prompt"] + asked["tokens"]
    seconds, clock, began = time.perf_counter() - began, Clock(), time.perf_counter()
    rows(1, clock)
    told.append([clock.times[1] - began, streams * asked["tokens"] / seconds])
json.dump(told, sys.stdout)
"""
STREAMS = (1, 4, 16)
PROMPT = 16
ROW = "{who:<14}{streams:>8} {first:>12} {rate:>14} {same:>8}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=sorted(SIZES), default="1M")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--beside", metavar="PYTHON", default="")
    asked = parser.parse_args()
    from marin.process.arithmetic import apply

    recipe = Recipe(model=SIZES[asked.size])
    apply(recipe.arithmetic, Execution(devices=1))
    measure(recipe, asked.tokens)
    if asked.beside:
        beside(asked.beside, recipe.model, asked.tokens)


def measure(recipe: Recipe, count: int) -> None:
    """All rows."""
    import jax.random as jrandom
    import uvicorn
    from haliax import Axis
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    from marin.data.tokenizer import parse_tokenizer
    from marin.evaluation.scoring import Scorer
    from marin.evaluation.subject import Subject
    from marin.plugins.serve.app import Served
    from marin.plugins.serve.engine import Engine
    from marin.plugins.serve.server import configuration
    from marin.process.cache import compilation_cache
    from marin.process.listening import address_of, bind
    from marin.training.model import model_config
    from marin.training.runtime.compilation import use_compilation_cache

    use_compilation_cache(compilation_cache())
    words = {f"w{number} ": number for number in range(VOCABULARY)}
    model = model_config(recipe.model).build(Axis("vocab", VOCABULARY), key=jrandom.PRNGKey(0))
    tokenizer = Tokenizer(WordLevel(words, unk_token="w0 "))  # noqa: S106
    read = parse_tokenizer(tokenizer.to_str().encode(), where="bench")
    subject = Subject("bench", recipe, model, read, f"sha256:{'0' * 64}", 0, f"sha256:{'0' * 64}")
    engine = Engine(Scorer(model, recipe))
    engine.start()
    listener = bind("127.0.0.1", 0)
    server = uvicorn.Server(configuration(listener, Served(subject, engine, None, "bench", 0)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    draw = np.random.default_rng(1)
    prompts = [[int(token) for token in draw.integers(1, VOCABULARY, PROMPT)] for _ in range(16)]
    try:
        alone = [stream(address_of(listener), prompt, count)[2] for prompt in prompts[:2]][:2]
        say(ROW.format(who="", streams="streams", first="first", rate="tokens/s", same="same"))
        for streams in STREAMS:
            began = time.perf_counter()
            with ThreadPoolExecutor(streams) as pool:
                told = list(pool.map(lambda prompt: stream(address_of(listener), prompt, count), prompts[:streams]))
            seconds = time.perf_counter() - began
            same = [one[2] == known for one, known in zip(told, alone, strict=False)]
            say(
                ROW.format(
                    who="marin serve",
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


def beside(python: str, model: Model, count: int) -> None:
    """transformers' rows. The first token is that of a single stream: a batch gives all its first ones together."""
    config = {
        "vocab_size": VOCABULARY,
        "hidden_size": model.hidden_dim,
        "intermediate_size": model.intermediate_dim,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_kv_heads,
        "max_position_embeddings": model.seq_len,
    }
    asked = json.dumps({"config": config, "tokens": count, "prompt": PROMPT, "streams": STREAMS})
    done = subprocess.run([python, "-c", PEER], input=asked, stdout=subprocess.PIPE, text=True, check=True)
    for streams, (first, rate) in zip(STREAMS, json.loads(done.stdout), strict=True):
        say(
            ROW.format(who="transformers", streams=streams, first=f"{first * 1000:.1f} ms", rate=f"{rate:.0f}", same="")
        )


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
