"""How many tokens come a second where text is generated, beside another checkout and transformers, by turns in one run.

    python -m bench.models.generate [--tokens 128] [--rounds 3] [--batch 1 --batch 16] [--profile exact] [--before CHECKOUT]
        [--beside PYTHON]

The default model with its initial weights continues prompts of one random token, as many at once as `batch` says, greedily and
drawn at temperature 0.8, each after it has done so once. `verified` looks at the same tokens as somebody else's (Prompt.said).
CHECKOUT is one with its own environment, PYTHON an interpreter of an environment with torch and transformers, which are no
dependency here: its `generate` continues a model of the same shape. Of each row the best of the rounds is told: tokens a second
of the wall, milliseconds of the processor (all threads) for each token, which other work disturbs less, and whether the tokens
are those of the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OURS = """
import json, sys, time
from marin.process.arithmetic import apply
from marin.recipe.schema import Execution, Recipe
recipe = Recipe()
if sys.argv[1] == "exact":
    from marin.recipe.arithmetic import EXACT
    recipe = Recipe(arithmetic=EXACT)
apply(recipe.arithmetic, Execution(devices=1))
import dataclasses
import jax.random as jrandom
import numpy as np
from haliax import Axis
from marin.evaluation.scoring import Prompt, Scorer, request_name
from marin.process.cache import compilation_cache
from marin.training.model import model_config
from marin.training.runtime.compilation import use_compilation_cache
use_compilation_cache(compilation_cache())
scorer = Scorer(model_config(recipe.model).build(Axis("vocab", 2048), key=jrandom.PRNGKey(0)), recipe)
texts = [(int(token),) for token in np.random.default_rng(1).integers(1, 2048, 64)]
known = {}
for line in sys.stdin:
    asked = json.loads(line)
    count, heat = asked["batch"], asked["heat"]
    prompts = [Prompt(text, asked["tokens"], lambda new: False, heat, request_name(text)) for text in texts[:count]]
    if asked["said"]:
        prompts = [dataclasses.replace(one, said=new) for one, new in zip(prompts, known[count, heat])]
    wall, busy = time.perf_counter(), time.process_time()
    found = scorer.generate(prompts, 7)
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    known[count, heat] = found
    print(json.dumps({"wall": wall, "busy": busy, "tokens": found}), flush=True)
"""
THEIRS = """
import json, sys, time
import torch
from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=2048, hidden_size=128, intermediate_size=352, num_hidden_layers=4,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=256)).eval()
for line in sys.stdin:
    asked = json.loads(line)
    prompt = torch.randint(1, 2048, (asked["batch"], 1))
    heat = {"do_sample": True, "temperature": asked["heat"], "top_k": 0} if asked["heat"] else {"do_sample": False}
    wall, busy = time.perf_counter(), time.process_time()
    found = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=asked["tokens"],
        min_new_tokens=asked["tokens"], **heat)
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    print(json.dumps({"wall": wall, "busy": busy, "tokens": found[:, 1:].tolist()}), flush=True)
"""
BATCHES, HEATS = (1, 4, 16), (0.0, 0.8)
ROW = "{who:<13}{batch:>6} {heat:>5} {rate:>10} {busy:>13} {same:>6}"


@dataclass
class Side:
    """A process that generates. ``best``: wall and processor seconds by (batch, temperature)."""

    name: str
    python: Path
    program: str
    folder: Path
    profile: str = "portable-cpu"
    best: dict[tuple[int, float], tuple[float, float]] = field(default_factory=dict)
    tokens: dict[tuple[int, float], Any] = field(default_factory=dict)

    def start(self) -> None:
        """Import what there is to import."""
        waiting = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        waiting |= {"OMP_WAIT_POLICY": "PASSIVE"}  # on a busy machine torch's threads spin for ever otherwise
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        command = [str(self.python), "-c", self.program, self.profile]
        self.process = subprocess.Popen(command, cwd=self.folder, env=waiting, text=True, **pipes)

    def ask(self, batch: int, heat: float, tokens: int, *, said: bool = False) -> tuple[float, float]:
        """Generate once."""
        assert self.process.stdin is not None and self.process.stdout is not None
        asked = {"batch": batch, "heat": heat, "tokens": tokens, "said": said}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name} ended: {self.python}")
        told = json.loads(answer)
        self.tokens[batch, heat] = told["tokens"]
        count = sum(map(len, told["tokens"]))
        return told["wall"] / count, told["busy"] / count


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--heat", type=float, action="append")
    parser.add_argument("--profile", choices=("portable-cpu", "exact"), default="portable-cpu")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--beside", type=Path)
    asked = parser.parse_args()
    sides = [Side("here", Path(sys.executable), OURS, Path.cwd(), asked.profile)]
    if asked.before:
        folder = asked.before.resolve()
        sides.append(
            Side(
                "before",
                folder / ".venv" / "bin" / "python",
                OURS.replace('asked["said"]', "False"),
                folder,
                asked.profile,
            )
        )
    if asked.beside:
        sides.append(Side("transformers", asked.beside, THEIRS, Path.cwd()))
    say(ROW.format(who="", batch="batch", heat="heat", rate="tokens/s", busy="cpu ms/token", same="same"))
    for side in sides:
        side.start()
    verified = Side("verified", Path(), "", Path())
    for batch in asked.batch or BATCHES:
        for heat in asked.heat or HEATS:
            case = batch, heat
            for side in sides:
                side.ask(batch if side.name == "here" else 1, heat, asked.tokens)  # compiled
            for _ in range(asked.rounds):
                for side in sides:
                    _keep(side, case, side.ask(batch, heat, asked.tokens))
                _keep(verified, case, sides[0].ask(batch, heat, asked.tokens, said=True))
            for side in (sides[0], verified, *sides[1:]):
                wall, busy = side.best[case]
                same = case in side.tokens and side.name == "before"
                row = {"who": side.name, "batch": batch, "heat": heat, "rate": f"{1 / wall:.0f}"}
                equal = str(side.tokens[case] == sides[0].tokens[case]).lower() if same else ""
                say(ROW.format(**row, busy=f"{1000 * busy:.3f}", same=equal))
    for side in sides:
        side.process.terminate()


def _keep(side: Side, case: tuple[int, float], took: tuple[float, float]) -> None:
    best = side.best.get(case, took)
    side.best[case] = min(best[0], took[0]), min(best[1], took[1])


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
