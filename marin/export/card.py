"""A model card with the chat template, beside an exported model: what the ledger says of it, in Hugging Face's metadata.

They stand beside the export, not in it: the export's own files, and so its digest, are those that the run recorded.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from marin.data.borrowed.chats import chat_template, has_conversations
from marin.data.template import template_of
from marin.errors import UsageError
from marin.export.quoting import yaml_of
from marin.history.run import Run
from marin.history.runs import History
from marin.recipe import schema as recipes
from marin.verify.agreement import consistent_run

CARD, CHAT_TEMPLATE = "README.md", "chat_template.jinja"
"""What may stand beside the files of an exported model (``marin export --card``), and is not part of it."""


def write_card(history: History, run: str, folder: Path, *, license: str | None = None) -> list[Path]:
    """Write ``README.md`` and ``chat_template.jinja`` of ``run`` into the exported ``folder``; of a run without conversations no
    template in place of the one that its tokenizer came with.

    Raises:
        UsageError: one of them is there already.
        Tampered: the run's events contradict one another.
    """
    view = consistent_run(history, run)
    files = {folder / CARD: card(view, license=license)}
    if has_conversations(view.recipe) or chat_template(folder) is None:
        files[folder / CHAT_TEMPLATE] = template_of(view.recipe.dataset).text
    for path, text in files.items():
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise UsageError(
                "a file is there already",
                where=str(path),
                expected="none",
                found="another text",
                cure="export into another folder",
            )
        path.write_text(text, encoding="utf-8")
    return list(files)


def card(view: Run, *, license: str | None = None) -> str:
    """The card's text: metadata between lines of dashes, and what a reader needs to check the model."""
    recipe = view.recipe
    trained = view.segments[-1].body.end_state if view.segments else ""
    data = recipe.dataset.name
    numbers = {name: value for name, value in sorted(view.measured.items()) if math.isfinite(value)}
    metadata = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["marin", recipe.model.architecture, recipe.arithmetic.profile],
        **({"license": license} if license is not None else {}),
        **({"model-index": [_index(view.run, data, numbers)]} if numbers else {}),
    }
    head = yaml_of(metadata)
    sizes = recipe.model
    rows = [
        ("run", view.run),
        ("recipe", recipes.digest(recipe)),
        ("model", view.steps["export"].output.digest if "export" in view.steps else ""),
        ("trained state", trained),
        (
            "architecture",
            f"{sizes.architecture}, {sizes.num_layers} layers of {sizes.hidden_dim}, context {sizes.seq_len}",
        ),
        ("data", data),
        ("train steps", str(recipe.trainer.num_steps)),
        ("arithmetic", recipe.arithmetic.profile),
    ]
    table = "\n".join(f"| {name} | `{value}` |" for name, value in rows if value)
    return (
        f"---\n{head}---\n\n# {view.run}\n\nTrained and recorded by Marin: anyone who has the ledger can execute every train "
        f"step again, bit for bit.\n\n| | |\n| --- | --- |\n{table}\n\n```\nmarin verify {view.run}\n```\n\n"
        "The numbers are those that the run's own evaluation recorded. How the messages of a conversation become a text says "
        f"{CHAT_TEMPLATE}.\n\n"
        f"```json\n{json.dumps(numbers, indent=2)}\n```\n"
    )


def _index(run: str, data: str, numbers: dict[str, float]) -> dict[str, object]:
    return {
        "name": run,
        "results": [
            {
                "task": {"type": "text-generation"},
                "dataset": {"name": data, "type": data},
                "metrics": [{"type": name, "value": value} for name, value in numbers.items()],
            }
        ],
    }
