"""Messages as a prompt: the model's chat template, rendered in jinja2's sandbox.

A run has the template of the chats that are trained on here (:mod:`marin.data.chat`); a Hugging Face folder its own
(``chat_template.jinja``, or in ``tokenizer_config.json``). Templates are foreign programs in a small language: the
sandbox gives them no file, no module and no attribute of ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from marin.data.chat import ROLES
from marin.data.tokenizer import END_OF_TEXT
from marin.errors import UsageError

TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] not in " + repr(list(ROLES)) + " -%}"
    "{{ raise_exception('a role is " + ", ".join(ROLES) + "') }}"
    "{%- endif -%}"
    "{{ '<|' + message['role'] + '|>\\n' + message['content'] + '\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}"
)
"""The form of :func:`marin.data.chat.render`, as transformers and vLLM render it."""

STOPS = tuple(f"\n<|{role}|>" for role in ROLES)
"""Where an answer under :data:`TEMPLATE` ends: at the next turn."""

LONGEST = 65_536
"""Characters of a template."""
MOST_TEXT = 4_000_000
"""Characters of what it renders."""


class ChatTemplate:
    """A compiled template. ``variables``: what else it may name (``bos_token`` and the like).

    Raises:
        UsageError: it is no template.
    """

    def __init__(self, text: str, variables: Mapping[str, str], *, where: str) -> None:
        self.text, self.variables = text, dict(variables)
        self.stops = STOPS if text == TEMPLATE else ()
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        try:
            if len(text) > LONGEST:
                raise ValueError(f"{len(text)} characters")
            self._template = environment.from_string(text)
        except (TemplateError, ValueError, RecursionError) as error:
            raise UsageError(
                "a chat template that cannot be read",
                where=where,
                expected=f"a jinja2 template of at most {LONGEST} characters",
                found=" ".join(str(error).split())[:200],
                cure="name another with --chat-template",
            ) from None

    def render(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The prompt after which the assistant speaks.

        Raises:
            ValueError: the template refuses these messages, or cannot render them.
        """
        parts, size = [], 0
        try:
            for part in self._template.generate(
                messages=[dict(message) for message in messages], add_generation_prompt=True, **self.variables
            ):
                size += len(part)
                if size > MOST_TEXT:
                    raise ValueError(f"the rendered chat has more than {MOST_TEXT} characters")
                parts.append(part)
        except (TemplateError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(" ".join(str(error).split())[:200] or type(error).__name__) from None
        return "".join(parts)


def template_for(folder: str | None, file: Path | None) -> ChatTemplate | None:
    """The template of ``file`` if it is given, of a Hugging Face ``folder``, or of a run (``folder`` None).

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
        return ChatTemplate(text, {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT}, where=str(file))
    return template_of_folder(Path(folder)) if folder is not None else ChatTemplate(TEMPLATE, {}, where="a run's chats")


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
    return ChatTemplate(text, special_tokens(config), where=str(folder))


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the special tokens that ``tokenizer_config.json`` names."""
    found = {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = config.get(name)
        value = value.get("content") if isinstance(value, dict) else value
        if isinstance(value, str):
            found[name] = value
    return found


def _raise(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _to_json(value: object, indent: int | None = None, ensure_ascii: bool = False) -> str:
    """As transformers' filter: nothing is escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent if indent is None or indent < 9 else 8)
