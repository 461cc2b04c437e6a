"""Options that name witnesses, authorities and repositories for one command; `marin trust` names them for all."""

from __future__ import annotations

from pathlib import Path

import click

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)

policy_option = click.option(
    "--policy",
    type=_FILE,
    metavar="FILE",
    help="Your witnesses and how many must have cosigned (C2SP tlog-policy).  [default: `marin trust`]",
)
ca_option = click.option(
    "--ca",
    type=_FILE,
    metavar="FILE",
    help="Certificates (PEM) of time stamp authorities that you trust.  [env: MARIN_TSA_CA; default: `marin trust`]",
)
git_option = click.option(
    "--git",
    type=_FOLDER,
    metavar="FOLDER",
    multiple=True,
    help="Ask this Git repository for anchors of the log; Git runs only then.  [default: `marin trust`]",
)
