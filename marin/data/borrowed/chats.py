"""What a tokenizer's folder says of chats: its special tokens by name, the texts that are special to it, and its chat template.

Reference: ``AutoTokenizer.from_pretrained`` of transformers 5.12.1. Nothing of a folder is executed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marin.data.chat import STOPS, TEMPLATE
from marin.data.template import ChatTemplate, template_of
from marin.data.tokenizer import CONFIG, FILE, SPECIAL_MAP, named_tokens, read_settings
from marin.errors import UsageError
from marin.recipe.schema import FilesDataset, Recipe, as_recorded, parts

TEMPLATE_FILE, OTHER_TEMPLATES = "chat_template.jinja", "additional_chat_templates"


def special_tokens(folder: Path) -> dict[str, str]:
    """The texts of the special tokens that have a name, as a template sees them: one that is null has none.

    Raises:
        UsageError: a file cannot be read.
    """
    return named_tokens(*(read_settings(folder / name, UsageError) for name in (CONFIG, SPECIAL_MAP)))


def template_in(folder: Path, *, clock: bool = False) -> ChatTemplate | None:
    """The chat template that a Hugging Face folder brings, if there is one. ``clock``: it may ask for the time.

    Raises:
        UsageError: it cannot be read.
    """
    text, special = chat_template(folder), special_tokens(folder)
    stops = STOPS if text == TEMPLATE else ()
    return None if text is None else ChatTemplate(text, special, where=str(folder), stops=stops, clock=clock)


def model_template(recipe: Recipe, folder: Path) -> ChatTemplate:
    """The template by which a trained model is asked: that of the recipe's conversations, and where it has none the one that came
    with the tokenizer in ``folder``, as transformers takes it from an exported folder.

    Raises:
        UsageError: it is not a template.
    """
    brought = None if as_recorded(recipe) or has_conversations(recipe) else template_in(folder)
    return brought or template_of(recipe.dataset, special_tokens(folder))


def has_conversations(recipe: Recipe) -> bool:
    """Whether conversations are trained on."""
    return any(isinstance(part, FilesDataset) and part.chat for part in parts(recipe.dataset).values())


def check_marks(folder: Path) -> None:
    """Refuse a tokenizer that takes its own marks for text: a model could not tell a turn from what is said.

    Raises:
        UsageError: ``tokenizer_config.json`` has ``split_special_tokens``.
    """
    if read_settings(folder / CONFIG, UsageError).get("split_special_tokens"):
        raise UsageError(
            "a tokenizer that splits its special tokens",
            where=f"{folder}: tokenizer_config.json",
            expected="split_special_tokens: false, where conversations are trained on",
            found="true",
            cure="take the line out, and the marks of the chat template are one token each",
        )


def special_texts(folder: Path) -> frozenset[str]:
    """The texts that its tokenizer takes for one token each wherever they stand."""
    added = read_settings(folder / FILE, UsageError).get("added_tokens")
    found = [one.get("content") for one in added if isinstance(one, dict)] if isinstance(added, list) else []
    return frozenset(text for text in found if isinstance(text, str) and text.strip())


def chat_template(folder: Path) -> str | None:
    """The template of a folder, if there is one: that of the files of templates, before that of ``tokenizer_config.json``. Of
    several by name the one for tools and the default become one, which asks for tools as transformers chooses.

    Raises:
        UsageError: it cannot be read.
    """
    files = {path.name.removesuffix(".jinja"): path for path in sorted((folder / OTHER_TEMPLATES).glob("*.jinja"))}
    if (folder / TEMPLATE_FILE).is_file():
        files = {"default": folder / TEMPLATE_FILE, **files}
    found: Any = {name: _file_text(path) for name, path in files.items()}
    found = found or read_settings(folder / CONFIG, UsageError).get("chat_template")
    if isinstance(found, list):
        found = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
    if not isinstance(found, dict):
        return found if isinstance(found, str) else None
    default, tools = (found.get(name) if isinstance(found.get(name), str) else None for name in ("default", "tool_use"))
    if default is None and tools is None:
        raise UsageError(
            "chat templates of which none is the default",
            where=str(folder),
            expected="one with the name default",
            found=", ".join(sorted(map(str, found)))[:200],
            cure="name one with dataset.chat_template",
        )
    return default if tools is None else _either(tools, default)


def _either(tools: str, default: str | None) -> str:
    """One template of both. ``+`` keeps the white space that one begins or ends with; Jinja drops its last line end."""
    other = "{{ raise_exception('no chat template without tools') }}" if default is None else default.removesuffix("\n")
    return "{%+ if tools is not none +%}" + tools.removesuffix("\n") + "{%+ else +%}" + other + "{%+ endif +%}"


def _file_text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise UsageError(
            "a chat template that cannot be read", where=str(path), expected="a text", found=str(error)[:200]
        ) from None
