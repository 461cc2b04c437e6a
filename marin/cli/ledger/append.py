"""`marin ledger append`: events from outside, one or a batch of them, by way of the service that runs or to the log itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ledger import Draft, Receipt, Refused, Spool
from marin.cli.options import FOLDER, flag, option, takes
from marin.cli.output import print_json, say
from marin.errors import UsageError
from marin.record.root import open_root

DRAFT_FIELDS = {"type": str, "stream": str, "body": dict, "id": str, "expect_seq": int, "actor": str, "time": str}
REQUIRED = ("type", "stream", "body")


@dataclass(frozen=True)
class AppendOptions:
    """What `marin ledger append` takes."""

    type_: str | None = option("T", "Type of the event, such as note.added/v1.", "--type")
    stream: str | None = option("S", "Stream that the event belongs to, such as run/2khr7ocq.")
    body: Any = option("FILE", "The body, a JSON object; - is stdin.", type=click.File("rb"))
    id_: str | None = option("ID", "Idempotency key: appending it again returns the same index.", "--id")
    expect_seq: int | None = option("N", "Refuse unless the event gets this number.", least=0)
    batch: Any = option(
        "FILE",
        "Many events, one JSON object a line with type, stream, body and optional id; all or none.",
        type=click.File("rb"),
    )
    spool: Path | None = option(
        "DIR",
        "Make the batch durable in this folder first, then send all that lies there until acknowledged.",
        type=FOLDER,
    )
    as_json: bool = flag("Print one JSON object an event: index, leaf_hash, seq, tree_size.", "--json")


@click.command()
@takes(AppendOptions)
def append(options: AppendOptions) -> None:
    """Append an event, or a batch of them, and return when they are durable under a signed checkpoint.

    Goes through the append service (`marin ledger serve`) while one runs for this root, else to the log itself. With
    --spool nothing is lost when neither can be reached: the next call with the same folder sends it again.

    \b
    Examples:
      echo '{"text": "first try"}' | marin ledger append --type note.added/v1 --stream notes --body - --json
      marin ledger append --batch events.jsonl --json
    """
    if options.batch is not None:
        if any(
            value is not None
            for value in (options.type_, options.stream, options.body, options.id_, options.expect_seq)
        ):
            raise UsageError(
                "--batch stands alone",
                expected="type, stream, body and id on each line of the batch",
                cure="leave the other options out",
            )
        drafts = list(drafts_of_batch(options.batch, where=options.batch.name))
    else:
        if options.type_ is None or options.stream is None or options.body is None:
            raise UsageError(
                "an event needs a type, a stream and a body",
                expected="--type, --stream and --body, or --batch",
                cure="see `marin ledger append --help`",
            )
        value = parse_object(options.body.read(), where=f"--body {options.body.name}")
        drafts = [Draft(options.type_, options.stream, value, id=options.id_, expect_seq=options.expect_seq)]
    root = open_root()
    if not drafts:
        say(f"{options.batch.name} holds no events: nothing was appended", err=True)
    elif options.spool is None:
        for receipt in root.append(drafts):
            _print_receipt(receipt, as_json=options.as_json)
    else:
        with closing(Spool(options.spool, root.writer)) as waiting:
            waiting.put(drafts)
            for receipt in waiting.drain():
                _print_receipt(receipt, as_json=options.as_json)


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
