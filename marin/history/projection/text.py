"""Bodies of events as MLflow takes them: flat keys, readable values, names and tags within its bounds."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from marin.process.text import visible
from marin.recipe.form.record import unplain
from marin.record.events import LOOP, Output

LOSS = "train/loss"
TOKENS = "train/tokens"
_NOT_IN_A_MODEL = re.compile(r"[/:.%\"']")
_NOT_IN_A_KEY = re.compile(r"[^\w\-./: ]")
"""As MLflow has it: letters are those of every script."""


def milliseconds(time: str) -> int:
    """An event's RFC 3339 time as milliseconds since 1970, which is what MLflow counts in."""
    return round(datetime.fromisoformat(time).timestamp() * 1000)


def text(value: object) -> str:
    """A value of an event body as people read it: hex floats as decimals, lists and mappings as JSON."""
    found = unplain(value)
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, sort_keys=True)


def flatten(value: Mapping[str, Any]) -> dict[str, str]:
    """Nested mappings as one, keys joined by dots and as MLflow takes them."""
    return {key: text(item) for key, item in flat_values(value).items()}


def flat_values(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The same with values as they were before they were recorded."""
    flat: dict[str, Any] = {}
    for key, item in unplain(value).items():
        name = f"{prefix}{key_of(str(key))}"
        found = flat_values(item, f"{name}.") if isinstance(item, Mapping) and item else {name: item}
        flat |= {one.replace(".", "_x2e_") if one in flat else one: each for one, each in found.items()}
    return flat


def tokens_of_step(recipe: Mapping[str, Any]) -> int | None:
    """Tokens of text that a train step reads; None where the recipe is of a loop, whose own words mean what its owner says, and
    where what is read are completions, or pairs that are filled up."""
    match recipe:
        case {"objective": Mapping()} | {"lora": {"dpo_beta": str()}}:
            return None
        case {"trainer": {"batch_size": int(batch)}, "model": {"seq_len": int(length)}} if LOOP not in recipe:
            return batch * length
    return None


def key_of(name: str) -> str:
    """The name of a metric or parameter as MLflow takes it: another sign stands by its number (``acc@1`` is ``acc_x40_1``), so
    that two names stay two."""
    return _NOT_IN_A_KEY.sub(lambda sign: f"_x{ord(sign.group()):x}_", name)


def single_key(*parts: str) -> str:
    """The name of a metric with one value. MLflow's run page makes a section of what stands before a slash, in front of
    all others; only the curves have one, so that they are what is seen first."""
    return key_of(".".join(parts)).replace("/", ".")


def single_keys(names: Iterable[str]) -> dict[str, str]:
    """The same for names that stand together, so that two of them stay two: where one has a dot in the place of another's slash,
    the slash stands by its number."""
    found = {name: single_key(name) for name in names}
    often = Counter(found.values())
    return {name: key if often[key] == 1 else key_of(name.replace("/", "_x2f_")) for name, key in found.items()}


def curve_key(section: str, *parts: str) -> str:
    """The name of a curve: one section, and no slash behind it."""
    return f"{section}/{single_key(*parts)}"


def model_name(name: str) -> str:
    """A name that MLflow takes for a model."""
    return _NOT_IN_A_MODEL.sub("_", name)


def plain(value: str) -> str:
    """A value inside Markdown, also of a code span: one visible line, with nothing left that closes the span, opens a tag or
    begins a heading, a list or a table of verdicts."""
    return re.sub(r"[`<>\[\]*]", "_", visible(" ".join(value.split())))


def output_tags(output: Output) -> dict[str, str]:
    """The tags of a model: what its bytes are, and where they lie."""
    return {
        "marin.output": output.digest,
        "marin.artifact": output.artifact,
        "marin.output.kind": output.kind,
        "marin.output.size": str(output.size),
    }
