"""What this plugin adds: the commands ``unlearn`` and ``attribute``, and the certificate of what was unlearned."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.lazy import Lazy
from marin.cli.sharing.shapes import Shape, Values, Written, write_text

if TYPE_CHECKING:
    from marin.history.run import Run
    from marin.record.root import Root

COMMANDS = {
    "unlearn": Lazy(
        "marin.plugins.unlearning.commands.unlearn",
        "Make RUN again without documents, in equal bits to training from the start without them.",
    ),
    "attribute": Lazy(
        "marin.plugins.unlearning.commands.attribute",
        "Train RUN again without each of some documents, and measure exactly what its losses would be.",
    ),
}


def write_certificate(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """What the run has unlearned."""
    from marin.plugins.unlearning import certificate

    text = certificate.certificate(root.history(), root.reader(), view.run, root.signer())
    yield write_text("unlearning", values["certificate"], text)


CERTIFICATE = Shape(
    click.Option(
        ["--unlearning", "certificate"],
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="What the run has unlearned, and what that does not prove, signed by the log's key: FILE.intoto.jsonl.",
    ),
    write_certificate,
    examples=("latest --unlearning unlearned.intoto.jsonl",),
)
