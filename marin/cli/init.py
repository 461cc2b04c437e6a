"""`marin init`: a root with an empty log, and the key that signs it."""

from __future__ import annotations

import os
from dataclasses import dataclass

import click

from marin.cli.options import flag, option, takes
from marin.cli.output import print_json
from marin.cli.tables import print_fields
from marin.errors import UsageError
from marin.record.creation import create_root
from marin.record.root import DEFAULT_ROOT, ROOT_VARIABLE, Root, root_location
from marin.record.trust.keyfiles import key_path


@dataclass(frozen=True)
class InitOptions:
    """What `marin init` takes."""

    origin: str | None = option(
        "NAME", "Name of the log in its checkpoints.  [default: marin.local/ and eight random digits]"
    )
    passphrase: bool = flag("Ask for a passphrase that encrypts the key.  [env: MARIN_KEY_PASSPHRASE]")
    here: bool = flag("Make one here, though a folder above has a root.")
    hybrid: bool = flag("Sign with ML-DSA-44 (FIPS 204) beside Ed25519.")
    quiet: bool = flag("Print nothing when the root is complete already.", "-q", "--quiet")
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command()
@takes(InitOptions)
def init(options: InitOptions) -> None:
    """Make a root with its log, and a signing key.

    The key goes to the user's configuration folder (or where MARIN_KEY says) with mode 0600, never into the root or
    into Git; a passphrase encrypts it, and is then taken from MARIN_KEY_PASSPHRASE whenever the key signs. The verifier
    key that is printed is what others need to check the log: publish it. Running this again changes nothing. Below a
    folder that has a root it makes no second one unless you say --here.

    \b
    Examples:
      marin init
      marin init --origin example.org/babylm --json
      marin init --passphrase --hybrid
      MARIN_ROOT=/data/ledger marin init
    """
    above = root_location()
    if not options.here and not os.environ.get(ROOT_VARIABLE) and above != DEFAULT_ROOT:
        raise UsageError(
            "a folder above has a root already",
            where=above,
            expected="no second one inside of it",
            found=os.getcwd(),
            cure="every command here uses that one; for another say --here",
        )
    if options.passphrase:
        # Also for the rest of this process, which signs the empty log with the key.
        os.environ["MARIN_KEY_PASSPHRASE"] = click.prompt(
            "Passphrase", hide_input=True, confirmation_prompt=True, err=True
        )
    root = create_root(origin=options.origin, hybrid=options.hybrid)
    root.own_keys()  # what MARIN_KEY names is a key, or no success is told
    if options.as_json:
        print_json(
            {
                "root": root.location,
                "origin": root.verifier.name,
                "vkey": str(root.verifier),
                "key": str(key_path(root.verifier.name)),
            }
        )
    elif not options.quiet:
        print_fields(_described(root))


def _described(root: Root) -> list[tuple[str, str]]:
    key = key_path(root.verifier.name)
    state = "" if os.access(key, os.R_OK) else "  (not on this machine: this root can be read, not written)"
    return [
        ("root", root.location),
        ("log", root.verifier.name),
        ("key", f"{key}{state}"),
        ("vkey", str(root.verifier)),
    ]
