"""What this plugin adds: the option ``--wandb`` of ``marin export``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.sharing.shapes import Shape, Values, Written

if TYPE_CHECKING:
    from marin.history.run import Run
    from marin.record.root import Root


def write(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """Write the run.

    Raises:
        MarinError: wandb did not write one.
    """
    from marin.plugins.wandb.export import export_wandb
    from marin.verify.agreement import consistent_run

    run = consistent_run(root.history(), view.run).run
    yield Written("wandb", export_wandb(root, run, values["wandb"]), view.started.body.recipe_digest)


SHAPE = Shape(
    click.Option(
        ["--wandb"],
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DEST",
        help="The run as an offline run of W&B; nothing is sent, `wandb sync` does that.",
    ),
    write,
    examples=("latest --wandb for-wandb/",),
)
