"""`marin site`: the whole root as one static folder."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from marin.cli.output import print_json, say
from marin.process.text import several
from marin.process.waiting import waiting
from marin.provenance.extras import DRAWING, need
from marin.record.root import open_root

logger = logging.getLogger(__name__)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--address", default="", metavar="URL", help="Where it will be served: link previews name their pictures by it."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def site(folder: Path, address: str, as_json: bool) -> None:
    """Write experiments, runs, data sets and models as one static folder with an index.

    Any web server serves it, and it reads without scripts. What has not changed since the last time is not drawn again, and
    pages of what is no longer listed (an archived run) are removed. Prints the path of the index.

    \b
    Examples:
      marin site public/
      marin site public/ --address https://example.org/runs
    """
    need(*DRAWING)
    with waiting("loading what draws pages"):
        from marin.plugins.sharing.pages.site import write_site

    written = write_site(open_root(), folder, lambda path: logger.info("%s", path), address=address)
    if as_json:
        print_json({"index": str(folder / "index.html"), "drawn": written.drawn, "kept": written.kept})
        return
    say(f"{several(written.drawn, 'pages')} drawn, {written.kept} kept", err=True)
    say(str(folder / "index.html"))
