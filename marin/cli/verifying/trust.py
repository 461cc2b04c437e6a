"""`marin trust`: whose keys, witnesses, time stamps and repositories count for this user."""

from __future__ import annotations

from pathlib import Path

import click

from marin.cli.keys import parse_vkey
from marin.cli.output import print_json, say
from marin.cli.tables import print_table
from marin.errors import UsageError

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.group()
def trust() -> None:
    """Say whose keys, witnesses, time stamps and Git repositories you trust.

    What a root brings of the kind supports no verdict. What you add here does, for every root; it lies below
    marin/trust in your configuration folder.
    """


@trust.command()
@click.option(
    "--vkey", "vkeys", metavar="KEY", multiple=True, help="The verifier key of a log, as its operator says it."
)
@click.option(
    "--policy", type=_FILE, metavar="FILE", help="Witnesses and their quorum (C2SP tlog-policy); the new one."
)
@click.option("--ca", type=_FILE, metavar="FILE", help="Certificates (PEM) of time stamp authorities, added.")
@click.option(
    "--git", type=_FOLDER, metavar="FOLDER", multiple=True, help="A Git repository that holds anchors, added."
)
def add(vkeys: tuple[str, ...], policy: Path | None, ca: Path | None, git: tuple[Path, ...]) -> None:
    """Trust keys, witnesses, authorities or repositories from now on.

    \b
    Examples:
      marin trust add --vkey 'example.org/log+530d903a+AekyeRrm5...'
      marin trust add --policy witnesses.txt --ca freetsa.pem --git .
    """
    from ledger import load_authorities, pem_bytes
    from marin.record.trust.changes import add_authorities, add_keys, add_repository, set_own_policy
    from marin.record.trust.trusted import default_trust

    if not (vkeys or policy or ca or git):
        raise UsageError(
            "nothing to trust",
            expected="--vkey, --policy, --ca or --git",
            found="none of them",
            cure="see `marin trust add --help`",
        )
    mine, keys = default_trust(), [parse_vkey(text) for text in vkeys]
    if keys:
        add_keys(mine, keys)
        _say_trusted("key", *keys)
    if policy is not None:
        set_own_policy(mine, policy)
        _say_trusted("witnesses", policy)
    if ca is not None:
        add_authorities(mine, pem_bytes(load_authorities(ca)))
        _say_trusted("authorities", ca)
    for folder in git:
        add_repository(mine, folder)
        _say_trusted("repository", folder)


def _say_trusted(what: str, *who: object) -> None:
    """Say on stderr what is trusted from now on."""
    for one in who:
        say(f"trusted from now on: {what} {str(one)[:100]}", err=True)


@trust.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def ls_(as_json: bool) -> None:
    """List whom you trust.

    \b
    Examples:
      marin trust ls
    """
    from marin.record.trust.policy import own_policy
    from marin.record.trust.trusted import default_trust

    mine = default_trust()
    policy, authorities = own_policy(mine), mine.authorities()
    value = {
        "keys": [str(key) for key in mine.all_keys()],
        "policy": str(policy) if policy is not None else None,
        "authorities": str(authorities) if authorities is not None else None,
        "repositories": [str(folder) for folder in mine.repositories()],
    }
    if as_json:
        print_json(value)
        return
    rows = [("key", str(key)[:100]) for key in mine.all_keys()]
    rows += [("witnesses", policy.describe())] if policy is not None else []
    rows += [("authorities", str(authorities))] if authorities is not None else []
    rows += [("repository", str(folder)) for folder in mine.repositories()]
    print_table(("what", "who"), rows, empty=f"nobody: nothing is in {mine.folder}")


@trust.command()
@click.argument("key", metavar="KEY")
def rm(key: str) -> None:
    """Trust a key no more: KEY is its text, or the origin whose keys are meant. Other files are yours to edit.

    \b
    Examples:
      marin trust rm example.org/log
    """
    from marin.record.trust.changes import remove_key
    from marin.record.trust.trusted import default_trust

    for gone in remove_key(default_trust(), key):
        say(f"no longer trusted: {gone}", err=True)
