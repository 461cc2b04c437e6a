"""`marin ledger fsck`: everything that the log claims is derived again, and what others say about it is held against it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from marin.cli.keys import parse_vkey
from marin.cli.ledger.proof import describe_checkpoint
from marin.cli.options import THERE, flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import describe_finding, describe_vouched
from marin.cli.verifying.sources import git_option, policy_option
from marin.errors import UsageError
from marin.process.text import several
from marin.record.audit import audit_log, is_foreign
from marin.record.trust.evidence import sources
from marin.record.trust.trusted import CLAIMED


@dataclass(frozen=True)
class FsckOptions:
    """What `marin ledger fsck` takes."""

    vkeys: tuple[str, ...] = option(
        "KEY", "Trust this verifier key instead of the root's own.", "--vkey", multiple=True
    )
    deep: bool = option(
        None,
        "Hash every artifact of the store; or see only that those which events name are there.",
        "--deep/--log-only",
        default=True,
        show_default=True,
    )
    ca: Path | None = option(
        "FILE",
        "Certificates (PEM) of time stamp authorities to trust.  [default: `marin trust`, the system's]",
        type=THERE,
    )
    policy: Path | None = policy_option()
    git: tuple[Path, ...] = git_option()
    workers: int | None = option("N", "Processes that look into entries.  [default: all cores]", least=1)
    foreign: bool = flag(
        "The root is any C2SP tlog-tiles log, whose entries need not be events.  [seen by itself with --vkey]"
    )
    as_json: bool = flag("Print one JSON object: whole, findings, log_checkpoint.", "--json")


@click.command()
@takes(FsckOptions)
def fsck(options: FsckOptions) -> None:
    """Derive every tile, entry and signature of the log again, and hash every artifact of the store.

    Also what witnesses, time stamps and Git commits say about it. Never stops at the first finding; each is one line,
    and then the exit status is 1. Nothing is changed.

    \b
    Examples:
      marin ledger fsck
      marin ledger fsck --log-only --json
      marin ledger fsck --root mirror/ --vkey example.org/log+1a2b3c4d+AQ...
    """
    if options.foreign and not options.vkeys:
        raise UsageError(
            "a foreign log needs a key",
            expected="--vkey KEY",
            found="none",
            cure="its operator publishes the verifier key",
        )
    keys = [parse_vkey(vkey) for vkey in options.vkeys]
    audit = audit_log(
        keys,
        log_only=not options.deep,
        foreign=options.foreign or (bool(keys) and is_foreign()),
        trusted=sources(options.policy, options.ca, options.git),
        workers=options.workers,
    )
    if options.as_json:
        print_json(
            {
                "whole": audit.whole,
                "findings": [describe_finding(finding) for finding in audit.findings],
                "log_checkpoint": describe_checkpoint(audit.checkpoint) if audit.checkpoint else None,
                "vouched": [describe_vouched(one) for one in audit.vouched],
                "undecided": list(audit.undecided),
                "claimed": list(audit.claimed),
            }
        )
    else:
        for line in (*audit.findings, *audit.vouched):
            say(str(line))
        for text in audit.claimed:
            say(f"{CLAIMED} {text}")
        for text in audit.undecided:
            say(text, err=True)
        if not audit.mine:
            say("the key is the root's own word: `marin trust add --vkey KEY` if its operator gave it to you", err=True)
        if audit.whole and audit.checkpoint:
            held = "" if audit.artifacts is None else f", {several(audit.artifacts, 'artifacts')}"
            say(f"whole: {audit.checkpoint.size} entries{held}, root {audit.checkpoint.root.hex()}")
    if not audit.whole:
        click.get_current_context().exit(1)
