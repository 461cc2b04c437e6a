"""What this plugin adds: the command ``mlperf``, and the option ``--mlperf`` of ``marin export``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.lazy import Lazy
from marin.cli.sharing.shapes import Shape, Values, Written

if TYPE_CHECKING:
    from marin.history.run import Run
    from marin.record.root import Root

COMMANDS = {
    "mlperf": Lazy(
        "marin.plugins.mlperf.command",
        "Print a benchmark's contract, prove where a run's random numbers came from, and check its results.",
    )
}


def write(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """Write the log.

    Raises:
        UsageError: the submission is not one, or the run is not one of the benchmark.
    """
    from ledger import digest_bytes
    from marin.plugins.mlperf.benchmark import GRAMMAR_LM, submission_of
    from marin.plugins.mlperf.lines import check_agreed, lines, write_log
    from marin.plugins.mlperf.seeding import seeding

    path, given, history = values["mlperf"], submission_of(values["mlperf_submission"]), root.history()
    check_agreed(history, view)
    seeds = seeding(history, view)
    data = write_log(lines(history, view, GRAMMAR_LM, given, seeds, origin=root.verifier.name), path)
    yield Written("mlperf", path, digest_bytes(data))


SHAPE = Shape(
    click.Option(
        ["--mlperf"],
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The run's log in the form of MLPerf training.",
    ),
    write,
    more=(
        click.Option(
            ["--mlperf-submission"],
            metavar="JSON|FILE",
            help="For --mlperf: org, platform, division (open or closed), status, poc_name, poc_email.",
        ),
    ),
    examples=("""latest --mlperf result_0.txt --mlperf-submission '{"org": "a-lab", "division": "closed"}'""",),
)
