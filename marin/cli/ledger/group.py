"""`marin ledger`: the log itself, for tools and for those who doubt it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import click

from ledger import Draft, LogCheckpoint, LogProof, Receipt, Refused, Spool, digest_bytes, make_proof, verify_proof
from marin.cli.ledger.anchor import anchor
from marin.cli.ledger.key import key
from marin.cli.ledger.service import publish, serve
from marin.cli.ledger.witness import witness
from marin.cli.naming import parse_vkey
from marin.cli.output import describe_finding, print_bytes, print_json, say
from marin.cli.verifying.trust import git_option, policy_option
from marin.errors import UsageError
from marin.process.files import write_whole
from marin.process.text import several
from marin.record.audit import audit_log, is_foreign
from marin.record.root import open_root
from marin.record.trust.evidence import CLAIMED, sources

DRAFT_FIELDS = {"type": str, "stream": str, "body": dict, "id": str, "expect_seq": int, "actor": str, "time": str}
REQUIRED = ("type", "stream", "body")


@click.group()
def ledger() -> None:
    """Work on the log itself: append, check, prove.

    The log is a C2SP tlog-tiles log with signed checkpoints; other implementations can audit it.
    """


for member in (serve, publish, witness, anchor, key):
    ledger.add_command(member)


@ledger.command()
@click.option("--type", "type_", metavar="T", help="Type of the event, such as note.added/v1.")
@click.option("--stream", metavar="S", help="Stream that the event belongs to, such as run/2khr7ocq.")
@click.option("--body", type=click.File("rb"), metavar="FILE", help="The body, a JSON object; - is stdin.")
@click.option("--id", "id_", metavar="ID", help="Idempotency key: appending it again returns the same index.")
@click.option("--expect-seq", type=click.IntRange(min=0), metavar="N", help="Refuse unless the event gets this number.")
@click.option(
    "--batch",
    type=click.File("rb"),
    metavar="FILE",
    help="Many events, one JSON object a line with type, stream, body and optional id; all or none.",
)
@click.option(
    "--spool",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Make the batch durable in this folder first, then send all that lies there until acknowledged.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object an event: index, leaf_hash, seq, tree_size."
)
def append(
    type_: str | None,
    stream: str | None,
    body: Any,
    id_: str | None,
    expect_seq: int | None,
    batch: Any,
    spool: Path | None,
    as_json: bool,
) -> None:
    """Append an event, or a batch of them, and return when they are durable under a signed checkpoint.

    Goes through the append service (`marin ledger serve`) while one runs for this root, else to the log itself. With
    --spool nothing is lost when neither can be reached: the next call with the same folder sends it again.

    \b
    Examples:
      echo '{"text": "first try"}' | marin ledger append --type note.added/v1 --stream notes --body - --json
      marin ledger append --batch events.jsonl --json
    """
    if batch is not None:
        if any(value is not None for value in (type_, stream, body, id_, expect_seq)):
            raise UsageError(
                "--batch stands alone",
                expected="type, stream, body and id on each line of the batch",
                cure="leave the other options out",
            )
        drafts = list(drafts_of_batch(batch, where=batch.name))
    else:
        if type_ is None or stream is None or body is None:
            raise UsageError(
                "an event needs a type, a stream and a body",
                expected="--type, --stream and --body, or --batch",
                cure="see `marin ledger append --help`",
            )
        value = parse_object(body.read(), where=f"--body {body.name}")
        drafts = [Draft(type_, stream, value, id=id_, expect_seq=expect_seq)]
    root = open_root()
    if not drafts:
        say(f"{batch.name} holds no events: nothing was appended", err=True)
    elif spool is None:
        for receipt in root.append(drafts):
            _print_receipt(receipt, as_json=as_json)
    else:
        with closing(Spool(spool, root.writer)) as waiting:
            waiting.put(drafts)
            for receipt in waiting.drain():
                _print_receipt(receipt, as_json=as_json)


def _print_receipt(receipt: Receipt, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {"index": receipt.index, "leaf_hash": receipt.leaf_hash, "seq": receipt.seq, "tree_size": receipt.tree_size}
        )
    else:
        say(f"event {receipt.index}, number {receipt.seq} of its stream, leaf {receipt.leaf_hash}")


def drafts_of_batch(lines: Iterable[bytes], *, where: str) -> Iterator[Draft]:
    """One draft for each line that is not empty; ``Refused`` names the line that is not one."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _draft(parse_object(line, where=f"{where}, line {number}"), where=f"{where}, line {number}")


def _draft(value: dict[str, Any], *, where: str) -> Draft:
    unknown = sorted(set(value) - set(DRAFT_FIELDS))
    missing = [name for name in REQUIRED if name not in value]
    if unknown or missing:
        raise Refused(
            "a line is no event",
            where=where,
            expected=f"the fields {', '.join(REQUIRED)} and optional id",
            found=f"unknown {', '.join(unknown)}" if unknown else f"no {', '.join(missing)}",
            cure="correct the line; nothing of the batch was appended",
        )
    for name, item in value.items():
        kind = DRAFT_FIELDS[name]
        if not isinstance(item, kind) or isinstance(item, bool):
            raise Refused(
                "a line is no event",
                where=f"{where}: {name}",
                expected=_JSON_NAMES[kind],
                found=json.dumps(item)[:80],
                cure="correct the line; nothing of the batch was appended",
            )
    return Draft(**value)


_JSON_NAMES: dict[type, str] = {str: "a string", dict: "an object", int: "a whole number"}


def parse_object(data: bytes, *, where: str) -> dict[str, Any]:
    """The JSON object in ``data``: UTF-8, no key twice, no NaN; ``Refused`` says what it is instead."""
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(
            "not JSON",
            where=where,
            expected="a JSON object in UTF-8",
            found=str(error),
            cure="correct it; nothing was appended",
        ) from None
    if not isinstance(value, dict):
        raise Refused(
            "not an object",
            where=where,
            expected="a JSON object",
            found=type(value).__name__,
            cure="wrap it in an object; nothing was appended",
        )
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} twice")
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name}, which JSON does not have")


@ledger.command()
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
        print_json(_describe_checkpoint(newest))
    else:
        print_bytes([reader.note()])


@ledger.command()
@click.option(
    "--vkey", "vkeys", multiple=True, metavar="KEY", help="Trust this verifier key instead of the root's own."
)
@click.option(
    "--deep/--log-only",
    "deep",
    default=True,
    show_default=True,
    help="Hash every artifact of the store; or see only that those which events name are there.",
)
@click.option(
    "--ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Certificates (PEM) of time stamp authorities to trust.  [default: `marin trust`, the system's]",
)
@policy_option
@git_option
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="N", help="Processes that look into entries.  [default: all cores]"
)
@click.option(
    "--foreign",
    is_flag=True,
    help="The root is any C2SP tlog-tiles log, whose entries need not be events.  [seen by itself with --vkey]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: whole, findings, log_checkpoint.")
def fsck(
    vkeys: tuple[str, ...],
    deep: bool,
    ca: Path | None,
    policy: Path | None,
    git: tuple[Path, ...],
    workers: int | None,
    foreign: bool,
    as_json: bool,
) -> None:
    """Derive every tile, entry and signature of the log again, and hash every artifact of the store.

    Also what witnesses, time stamps and Git commits say about it. Never stops at the first finding; each is one line,
    and then the exit status is 1. Nothing is changed.

    \b
    Examples:
      marin ledger fsck
      marin ledger fsck --log-only --json
      marin ledger fsck --root mirror/ --vkey example.org/log+1a2b3c4d+AQ...
    """
    if foreign and not vkeys:
        raise UsageError(
            "a foreign log needs a key",
            expected="--vkey KEY",
            found="none",
            cure="its operator publishes the verifier key",
        )
    keys = [parse_vkey(vkey) for vkey in vkeys]
    audit = audit_log(
        keys,
        log_only=not deep,
        foreign=foreign or (bool(keys) and is_foreign()),
        trusted=sources(policy, ca, git),
        workers=workers,
    )
    if as_json:
        print_json(
            {
                "whole": audit.whole,
                "findings": [describe_finding(finding) for finding in audit.findings],
                "log_checkpoint": _describe_checkpoint(audit.checkpoint) if audit.checkpoint else None,
                "vouched": [{"kind": v.kind, "size": v.size, "time": v.time, "by": v.by} for v in audit.vouched],
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


@ledger.command()
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


@ledger.command("verify-proof")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--vkey", "vkeys", multiple=True, required=True, metavar="KEY", help="A verifier key that must have signed."
)
@click.option("--entry", type=click.File("rb"), metavar="FILE", help="The entry, where the proof does not carry it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify_proof_(file: BinaryIO, vkeys: tuple[str, ...], entry: BinaryIO | None, as_json: bool) -> None:
    """Check a proof offline against verifier keys; - reads it from stdin. Needs no root.

    Exit status 1 when it does not hold.

    \b
    Examples:
      marin ledger verify-proof 41.tlog-proof --vkey "$(cat .marin/vkey)"
    """
    keys = [parse_vkey(key.strip()) for key in vkeys]
    shown = verify_proof(LogProof.parse(file.read()), keys, entry=entry.read() if entry else None)
    if as_json:
        print_json(
            {
                "index": shown.index,
                "entry": digest_bytes(shown.entry),
                "signers": list(shown.signers),
                "log_checkpoint": _describe_checkpoint(shown.checkpoint),
            }
        )
    else:
        say(
            f"entry {shown.index} is in {shown.checkpoint.origin} of {shown.checkpoint.size} entries, "
            f"signed by {', '.join(shown.signers)}"
        )


def _describe_checkpoint(checkpoint: LogCheckpoint) -> dict[str, object]:
    return {"origin": checkpoint.origin, "size": checkpoint.size, "root": checkpoint.root.hex()}
