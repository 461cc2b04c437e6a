"""The command and the configuration with which vLLM serves an exported folder as this server does: float32, the same context,
nothing of its own in front of a prompt. Its bits are its own (another order of sums); its names are vLLM's options.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from marin.recipe.schema import Recipe


def configuration(folder: Path, recipe: Recipe, name: str) -> dict[str, object]:
    """What ``vllm serve --config`` reads."""
    found: dict[str, object] = {
        "model": str(folder),
        "served-model-name": name,
        "host": "127.0.0.1",
        "port": 8001,
        "dtype": "float32",
        "max-model-len": recipe.model.seq_len,
        "generation-config": "vllm",  # no defaults of generation_config.json: temperature and the like are the request's
        "max-logprobs": 5,
        "seed": 0,
    }
    if (folder / "chat_template.jinja").is_file():
        found["chat-template"] = str(folder / "chat_template.jinja")
    return found


def as_yaml(configuration: dict[str, object]) -> list[str]:
    """Lines of a YAML file: every value as JSON, which is YAML."""
    return [f"{name}: {json.dumps(value)}" for name, value in configuration.items()]


def command(configuration: dict[str, object]) -> str:
    """The same as one command."""
    options = [f"--{name} {shlex.quote(str(value))}" for name, value in configuration.items() if name != "model"]
    return " ".join(["vllm serve", shlex.quote(str(configuration["model"])), *options])
