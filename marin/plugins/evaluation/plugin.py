"""What this plugin adds: the command ``eval``, and the options ``--eval-bundle`` and ``--babylm`` of ``marin export``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.choice import OneOf
from marin.cli.lazy import Lazy
from marin.cli.sharing.shapes import Shape, Values, Written

if TYPE_CHECKING:
    from marin.history.run import Run
    from marin.record.root import Root

COMMANDS = {
    "eval": Lazy(
        "marin.plugins.evaluation.command",
        "Evaluate a recorded state of RUN by tasks of lm-evaluation-harness, and record the numbers.",
    )
}
Folder = click.Path(file_okay=False, path_type=Path)


def write_bundle(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """Write the recorded evaluations of the exported model.

    Raises:
        MarinError: there are none, or they cannot be written there.
    """
    from marin.plugins.evaluation.harness.installed import check_installed
    from marin.process.arithmetic import apply
    from marin.recipe.schema import Execution

    contract = view.recipe.arithmetic  # a loop of one's own has none, whatever is installed
    check_installed("--eval-bundle")
    apply(contract, Execution(devices=1))
    from marin.plugins.evaluation.bundle import write  # jax, after the contract is in force

    dest: Path = values["bundled"]
    written = write.write_bundle(root, view, dest)
    events = ", ".join(map(str, written.left))
    note = f"left out: events {events}, evaluations of other states than the exported one" if events else ""
    yield Written("eval-bundle", dest, written.digest, note=note)


def write_babylm(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """Write a submission to the BabyLM challenge, and push it where that is asked for.

    Raises:
        MarinError: the run is not a submission, or it cannot be written there.
    """
    from ledger import describe_tree
    from marin.process.arithmetic import apply
    from marin.recipe.schema import Execution

    apply(view.recipe.arithmetic, Execution(devices=1))
    from marin.export.card import write_card
    from marin.plugins.evaluation.babylm.submission import write_submission  # jax, after the contract is in force

    dest, data, hub = values["babylm"], values["babylm_data"], values["hub"]
    beside = partial(write_card, root.history(), view.run, license=values["license"]) if values["card"] else None
    # With --hub a submission that is there is the one that was written before the push broke off.
    revisions = write_submission(view, root, data, dest, values["track"], again=hub is not None, card=beside)
    yield Written("babylm", dest, describe_tree(dest).digest, note=f"revisions: {', '.join(revisions)}")
    if hub is None:
        return
    from marin.export.hub import push_revisions

    for name, commit in push_revisions(revisions, hub, message=f"run {view.run}"):
        yield Written("hub", f"hf:{hub}@{commit}", describe_tree(revisions[name]).digest, revision=name)


BUNDLE = Shape(
    click.Option(
        ["--eval-bundle", "bundled"],
        type=Folder,
        metavar="DEST",
        help="Recorded evaluations of the model, for people who have that alone: marin verify FOLDER --bundle DEST.",
    ),
    write_bundle,
    examples=("latest --hf model/ --eval-bundle bundle/",),
)
BABYLM = Shape(
    click.Option(
        ["--babylm"],
        type=Folder,
        metavar="DEST",
        help="A submission to the BabyLM challenge: the checkpoints that it asks for, and predictions on --babylm-data. "
        "With --hub: the model to main, each checkpoint to a branch of its name.",
    ),
    write_babylm,
    more=(
        click.Option(
            ["--babylm-data"],
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            metavar="DIR",
            help="The evaluation_data of BabyLM's pipeline, for --babylm.",
        ),
        click.Option(
            ["--track"],
            type=OneOf(["strict-small", "strict"]),
            default="strict-small",
            show_default=True,
            help="Of the BabyLM challenge.",
        ),
    ),
    examples=(
        "latest --babylm submission/ --babylm-data evaluation_data/ --card --license mit",
        "latest --babylm submission/ --hub OWNER/NAME",
    ),
    folder=True,
)
