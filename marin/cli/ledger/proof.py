"""What the log signed, and proofs that an entry is in it, for others to check: `marin ledger checkpoint`,
`marin ledger proof` and `marin ledger verify-proof`."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import click

import ledger
from ledger import LogCheckpoint, LogProof, digest_bytes, make_proof
from marin.cli.keys import parse_vkey
from marin.cli.output import print_bytes, print_json, say
from marin.process.files import write_whole
from marin.record.root import open_root


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print origin, size and root instead of the note.")
def checkpoint(as_json: bool) -> None:
    """Print the newest log checkpoint, a signed note (C2SP tlog-checkpoint), after verifying it.

    \b
    Examples:
      marin ledger checkpoint > checkpoint.txt
      marin ledger checkpoint --json
    """
    reader = open_root().reader()
    newest = reader.checkpoint()
    if as_json:
        print_json(describe_checkpoint(newest))
    else:
        print_bytes([reader.note()])


@click.command()
@click.argument("index", type=click.IntRange(min=0))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write it there.")
def proof(index: int, output: Path | None) -> None:
    """Print the proof that entry INDEX is in the log (C2SP tlog-proof): a text that can be checked offline.

    It carries the entry, the inclusion proof and the signed checkpoint.

    \b
    Examples:
      marin ledger proof 41 > 41.tlog-proof
      marin ledger proof 41 --output 41.tlog-proof
    """
    data = str(make_proof(open_root().reader(), index)).encode()
    if output is not None:
        write_whole(output, data)
    else:
        print_bytes([data])


@click.command("verify-proof")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--vkey", "vkeys", multiple=True, required=True, metavar="KEY", help="A verifier key that must have signed."
)
@click.option("--entry", type=click.File("rb"), metavar="FILE", help="The entry, where the proof does not carry it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify_proof(file: BinaryIO, vkeys: tuple[str, ...], entry: BinaryIO | None, as_json: bool) -> None:
    """Check a proof offline against verifier keys; - reads it from stdin. Needs no root.

    Exit status 1 when it does not hold.

    \b
    Examples:
      marin ledger verify-proof 41.tlog-proof --vkey "$(cat .marin/vkey)"
    """
    keys = [parse_vkey(key.strip()) for key in vkeys]
    shown = ledger.verify_proof(LogProof.parse(file.read()), keys, entry=entry.read() if entry else None)
    if as_json:
        print_json(
            {
                "index": shown.index,
                "entry": digest_bytes(shown.entry),
                "signers": list(shown.signers),
                "log_checkpoint": describe_checkpoint(shown.checkpoint),
            }
        )
    else:
        say(
            f"entry {shown.index} is in {shown.checkpoint.origin} of {shown.checkpoint.size} entries, "
            f"signed by {', '.join(shown.signers)}"
        )


def describe_checkpoint(checkpoint: LogCheckpoint) -> dict[str, object]:
    """As ``--json`` prints it."""
    return {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
