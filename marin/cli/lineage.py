"""`marin lineage`: where a run's model comes from, as a table or as one HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from marin.cli.output import human_size, print_table
from marin.root import open_root
from marin.tracking.reading import run_record


@click.command()
@click.argument("run")
@click.option("--html", "target", type=click.Path(dir_okay=False, path_type=Path),
              help="Write a self-contained page with samples of the data to this file.")
def lineage(run: str, target: Path | None) -> None:
    """Show where a run's model comes from: steps, what each was made of, and digests.

    RUN is a run's id, a unique beginning of one, or latest.

    \b
    Examples:
      marin lineage latest
      marin lineage latest --html lineage.html
    """
    root = open_root()
    record = run_record(root, run)
    if target is not None:
        # Here: the terminal's table needs none of it.
        from marin.tracking.lineage import lineage_page, read_samples

        target.write_bytes(lineage_page(record, root.verifier.name, read_samples(record, root.store())))
        click.echo(str(target))
        return
    print_table(("step", "state", "made of", "content", "size"),
                [(step.name, step.state, ", ".join(step.inputs), step.output.digest if step.output else "",
                  human_size(step.output.size) if step.output else "") for step in record.ordered_steps()],
                empty="the run has no steps yet")

