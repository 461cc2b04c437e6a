"""Which tracker gets a run besides the ledger: `tracker=wandb` on the command line, or MARIN_TRACKER=wandb.

MLflow needs none of this: it is a projection that is always there. What decides no bit is in no recipe, so the word is
taken off the line before the recipe is composed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from marin.errors import UsageError

if TYPE_CHECKING:
    from marin.root import Root

VARIABLE = "MARIN_TRACKER"
TRACKERS = ("none", "wandb")


def split(overrides: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The words of a command line without `tracker=NAME`, and the tracker that it or the environment names.

    Raises:
        UsageError: there is no such tracker.
    """
    rest = tuple(word for word in overrides if not word.lstrip("+").startswith("tracker="))
    named = [word.partition("=")[2] for word in overrides if word not in rest]
    tracker = named[-1] if named else os.environ.get(VARIABLE) or "none"
    if tracker not in TRACKERS:
        raise UsageError("no such tracker", where="tracker" if named else VARIABLE, expected=" or ".join(TRACKERS), found=tracker,
                         cure="MLflow shows every run without one: marin ui")
    return rest, tracker


def after_run(root: Root, run: str, tracker: str) -> None:
    """A run is complete: the tracker gets it too, offline. A failure there takes nothing from the run."""
    if tracker != "wandb":
        return
    from marin.tracking.wandb_export import export_wandb  # a second of imports, only for who asked

    try:
        click.echo(f"for `wandb sync`: {export_wandb(root, run, root.local / 'projections')}", err=True)
    except Exception as error:  # a library's own; the run is recorded already
        click.echo(f"not written for W&B: {error}", err=True)
