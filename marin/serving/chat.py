"""Messages as a prompt: the model's chat template, rendered in jinja2's sandbox.

A run has the template of its recipe, or that of the chats that are trained on here (:mod:`marin.data.chat`); a Hugging Face
folder its own (``chat_template.jinja``, or in ``tokenizer_config.json``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marin.data.chat import ROLES
from marin.data.template import SPECIAL, ChatTemplate, template_of
from marin.errors import UsageError
from marin.recipe.schema import Recipe

TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] not in " + repr(list(ROLES)) + " -%}"
    "{{ raise_exception('a role is " + ", ".join(ROLES) + "') }}"
    "{%- endif -%}"
    "{{ '<|' + message['role'] + '|>\\n' + (message['content'] or '') }}"
    "{%- for call in message['tool_calls'] or [] -%}"
    "{{ ('\\n' if message['content'] or not loop.first else '') + "
    "{'name': call['function']['name'], 'arguments': call['function']['arguments']} | tojson }}"
    "{%- endfor -%}"
    "{{ '\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}"
)
"""The form of :func:`marin.data.chat.render`, as transformers and vLLM render it."""

STOPS = tuple(f"\n<|{role}|>" for role in ROLES)
"""Where an answer under :data:`TEMPLATE` ends: at the next turn."""


def template_for(folder: str | None, file: Path | None, recipe: Recipe) -> ChatTemplate | None:
    """The template of ``file`` if it is given, of a Hugging Face ``folder``, or of a run (``folder`` None) with this recipe.

    Raises:
        UsageError: it cannot be read.
    """
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UsageError(
                "a chat template that cannot be read", where=str(file), expected="a text", found=str(error)[:200]
            ) from None
        return ChatTemplate(text, SPECIAL, where=str(file), stops=STOPS if text == TEMPLATE else ())
    if folder is not None:
        return template_of_folder(Path(folder))
    return template_of(recipe.dataset) or ChatTemplate(TEMPLATE, {}, where="a run's chats", stops=STOPS)


def template_of_folder(folder: Path) -> ChatTemplate | None:
    """The template that a Hugging Face folder brings, if there is one.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        config = json.loads((folder / "tokenizer_config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        config = {}
    config = config if isinstance(config, dict) else {}
    own = folder / "chat_template.jinja"
    try:
        text = own.read_text(encoding="utf-8") if own.is_file() else config.get("chat_template")
    except (OSError, ValueError) as error:
        raise UsageError(
            "a chat template that cannot be read", where=str(own), expected="a text", found=str(error)[:200]
        ) from None
    if isinstance(text, list):  # several by name: the one called default
        text = next(
            (one.get("template") for one in text if isinstance(one, dict) and one.get("name") == "default"), None
        )
    if not isinstance(text, str):
        return None
    return ChatTemplate(text, special_tokens(config), where=str(folder), stops=STOPS if text == TEMPLATE else ())


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the special tokens that ``tokenizer_config.json`` names."""
    found = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = config.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            found[name] = value
    return found
