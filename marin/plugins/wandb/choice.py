"""Where in W&B a run goes, and whether it is sent there while it trains: words of a command line, kept in the environment.

    wandb.mode=online wandb.project=stanford-babylm wandb.tag=first-try

They decide no bit, so they are in no recipe. Nothing is sent unless ``wandb.mode=online`` says so and ``WANDB_API_KEY`` has the
key; then W&B's own ``WANDB_BASE_URL`` and ``WANDB_ENTITY`` count too. ``wandb.group`` and ``wandb.name`` are made of tag, model
and data where they are not given, as stanford-babylm does it: ``<tag>-<model>-<dataset>`` and ``<group>-run-<seed>``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from marin.errors import UsageError

VARIABLE = "MARIN_TRACKER_WANDB"
KEY = "WANDB_API_KEY"

Word = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:-]*$")]


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``log``: whether there is a run of W&B at all."""

    log: bool = True
    mode: Literal["offline", "online"] = "offline"
    project: Word | None = None
    group: Word | None = None
    name: Word | None = None
    tag: Word | None = None


def from_words(words: Mapping[str, str]) -> Choice:
    """What ``wandb.KEY=VALUE`` say, by KEY.

    Raises:
        UsageError: an unknown key or a value that W&B does not take; online without a key.
    """
    values = {key: value.strip("'\"") for key, value in words.items()}
    try:
        choice = msgspec.convert(values, Choice, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            "a word about W&B that cannot be read",
            where="wandb." + ", wandb.".join(words),
            expected="wandb.log=true, wandb.mode=offline or online, wandb.project, wandb.group, wandb.name, wandb.tag",
            found=str(error)[:200],
            cure="correct it, or leave it out",
        ) from None
    if choice.mode == "online" and not os.environ.get(KEY):
        raise UsageError(
            "W&B is to be told, and there is no key",
            where="wandb.mode=online",
            expected=f"the key in the variable {KEY}",
            found="none",
            cure="set it, or leave wandb.mode out: `wandb sync` sends the offline run later",
        )
    return choice


def keep(choice: Choice) -> None:
    """For this process and those that it starts."""
    os.environ[VARIABLE] = json.dumps(msgspec.to_builtins(choice))


def choice() -> Choice:
    """What was chosen; all defaults where nothing was.

    Raises:
        UsageError: the variable holds something else.
    """
    try:
        return msgspec.json.decode(os.environ.get(VARIABLE) or "{}", type=Choice)
    except msgspec.DecodeError as error:
        raise UsageError(
            "a variable that cannot be read",
            where=VARIABLE,
            expected="what `wandb.KEY=VALUE` writes",
            found=str(error)[:200],
            cure=f"unset {VARIABLE}, and say it on the command line",
        ) from None
