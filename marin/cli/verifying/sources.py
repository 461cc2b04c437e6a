"""Options that name witnesses, authorities and repositories for one command; `marin trust` names them for all."""

from __future__ import annotations

from functools import partial

from marin.cli.options import FOLDER_THERE, THERE, option

policy_option = partial(
    option,
    "FILE",
    "Your witnesses and how many must have cosigned (C2SP tlog-policy).  [default: `marin trust`]",
    type=THERE,
)
ca_option = partial(
    option,
    "FILE",
    "Certificates (PEM) of time stamp authorities that you trust.  [env: MARIN_TSA_CA; default: `marin trust`]",
    type=THERE,
)
git_option = partial(
    option,
    "FOLDER",
    "Ask this Git repository for anchors of the log; Git runs only then.  [default: `marin trust`]",
    type=FOLDER_THERE,
    multiple=True,
)
