"""`marin ledger witness`: others who vouch that this log only ever appended, and being such a witness oneself."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from ledger import Cosigner, PolicyWitness, PosixStorage, VerifierKey, Witness, WitnessServer, create_key, load_signer
from marin.cli.keys import parse_vkey
from marin.cli.ledger.service import ASK_WITNESSES, stop_signal
from marin.cli.options import argument, flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import print_fields
from marin.errors import UsageError
from marin.record.root import open_root
from marin.record.trust.policy import add_witness, load_policy
from marin.record.trust.witnesses import WitnessAnswers, ask_all, compare_all

_LOG = logging.getLogger(__name__)


def log_server(verb: str, kind: str, folder: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of a server that cosigns logs of others: which logs, its folder and key, and where it listens."""
    parameters = (
        click.option(
            "--log",
            "logs",
            multiple=True,
            required=True,
            metavar="KEY",
            help=f"Verifier key of a log to {verb}; repeatable.",
        ),
        click.option(
            "--folder",
            type=click.Path(path_type=Path, file_okay=False),
            default=Path(f".marin-{kind}"),
            show_default=True,
            metavar="DIR",
            help=folder,
        ),
        click.option(
            "--name",
            default=f"marin.local/{kind}",
            show_default=True,
            metavar="NAME",
            help="Name of a key that is made new.",
        ),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=0,
            show_default="any that is free",
            metavar="N",
            help="Port to listen on.",
        ),
        click.option(
            "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Interface to listen on."
        ),
    )

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return decorated


@click.group()
def witness() -> None:
    """Witnesses: whom to ask, asking them, and being one (C2SP tlog-witness).

    A witness cosigns a checkpoint only with a proof that it continues the one it cosigned before.
    """


@dataclass(frozen=True)
class AddOptions:
    """What `marin ledger witness add` takes."""

    address: str = argument()
    vkey: str = option("KEY", "The verifier key of the witness, as its operator publishes it.", required=True)
    name: str | None = option("NAME", "Its name in the policy.  [default: the key's name]")
    need: int | None = option("N", "How many of all witnesses must cosign.  [default: all]", least=1)
    ask: bool = option(None, "Ask it at once.", "--ask/--no-ask", default=True)
    as_json: bool = flag("Print one JSON object.", "--json")


@witness.command()
@takes(AddOptions)
def add(options: AddOptions) -> None:
    """Add the witness or mirror at ADDRESS to the policy of this root, and have it cosign.

    The policy is a file of the root, witness-policy, in the format of C2SP tlog-policy. From then on `marin ledger
    fsck` and `marin verify` want a checkpoint that so many witnesses cosigned.

    \b
    Examples:
      marin ledger witness add https://witness.example --vkey witness.example/w1+1a2b3c4d+BA... --need 2
    """
    if not re.match(r"https?://[^\s]+\Z", options.address):
        raise UsageError("not the address of a witness", where=options.address, expected="https://…")
    key = parse_vkey(options.vkey)
    if key.algorithm not in (0x04, 0x06):
        raise UsageError(
            "not the key of a witness",
            where=options.vkey[:80],
            expected="a cosignature key (0x04 or 0x06)",
            found=f"algorithm {key.algorithm:#04x}",
            cure="ask its operator for the witness's verifier key",
        )
    root = open_root()
    policy = add_witness(
        root.storage,
        root.verifier,
        PolicyWitness(options.name or key.name, key, options.address.rstrip("/")),
        options.need,
    )
    _LOG.info("the policy is now %s", policy.describe())
    if options.ask:
        _ask(as_json=options.as_json)
    elif options.as_json:
        print_json({"policy": policy.describe(), "witnesses": [w.name for w in policy.witnesses]})
    else:
        say(f"policy: {policy.describe()}")


@witness.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: size, cosigned, failed, met.")
def ask(as_json: bool) -> None:
    """Ask all witnesses of this root to cosign the newest checkpoint, and publish what they sign.

    While `marin ledger serve` runs, the service asks them. Exit status 1 when the policy is not met. A witness that saw
    another history says which two roots conflict.

    \b
    Examples:
      marin ledger witness ask
    """
    _ask(as_json=as_json)


def _ask(*, as_json: bool) -> None:
    root = open_root()
    service = root.service()
    if service is not None:
        with service:
            asked = WitnessAnswers.from_json(service.do(ASK_WITNESSES))
    else:
        with root.log() as log:
            asked = ask_all(root.storage, log, [root.verifier])
    _show(asked, as_json=as_json)
    if asked.unmet is not None:
        click.get_current_context().exit(1)


def _show(asked: WitnessAnswers, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "size": asked.size,
                "cosigned": list(asked.cosigned),
                "met": asked.unmet is None,
                "failed": dict(asked.failed),
            }
        )
        return
    for name, error in asked.failed:
        say(f"{name}: {error}", err=True)
    say(f"size {asked.size} cosigned by {', '.join(asked.cosigned) or 'nobody'}")
    if asked.unmet is not None:
        say(asked.unmet, err=True)


@witness.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: size, seen, agree.")
def compare(as_json: bool) -> None:
    """Compare this log with what its witnesses show of it (the monitoring part of C2SP tlog-witness).

    Exit status 1 where one has seen a longer log or another history: then this copy was rolled back, or the log has two
    histories. A witness may show what it cosigned up to an hour late.

    \b
    Examples:
      marin ledger witness compare
    """
    root = open_root()
    seen = compare_all(root.storage, [root.verifier])
    agree = not any(one.conflict for one in seen)
    if as_json:
        print_json({"seen": [asdict(one) for one in seen], "agree": agree})
    for one in () if as_json else seen:
        said = f"{one.name}: {one.why or f'has seen this log up to size {one.size}'}"
        say(said, err=one.conflict or one.size is None)
    if not agree:
        click.get_current_context().exit(1)


@witness.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def policy(as_json: bool) -> None:
    """Show the policy of this root: which witnesses, and how many of them.

    \b
    Examples:
      marin ledger witness policy
    """
    found = load_policy(open_root().storage)
    if as_json:
        print_json(
            {
                "policy": found.describe() if found else None,
                "witnesses": [{"name": w.name, "vkey": str(w.key), "url": w.url} for w in found.witnesses]
                if found
                else [],
            }
        )
    elif found is None:
        say("this root has no witnesses", err=True)
    else:
        say(*str(found).rstrip("\n").split("\n"))


@witness.command()
@log_server("watch", "witness", "Where it remembers what it cosigned, and has its key.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object when ready: address, vkeys.")
def serve(logs: tuple[str, ...], folder: Path, name: str, port: int, host: str, as_json: bool) -> None:
    """Be a witness for other logs, until interrupted.

    The key is made on the first start, in the folder, with mode 0600. A witness whose folder was put back to an older
    state would cosign what it has seen already a second time: keep the folder.

    \b
    Examples:
      marin ledger witness serve --log "$(cat /data/ledger/vkey)" --port 8080
    """
    keys: dict[str, list[VerifierKey]] = {}
    for text in logs:
        key = parse_vkey(text)
        keys.setdefault(key.name, []).append(key)
    cosigners = load_cosigners(folder / "key", name)
    vkeys = [str(cosigner.verifier) for cosigner in cosigners]
    with (
        stop_signal() as stop,
        WitnessServer(Witness(PosixStorage(folder), cosigners, keys), host=host, port=port) as server,
    ):
        if as_json:
            print_json({"address": server.address, "vkeys": vkeys, "logs": list(keys)})
        else:
            print_fields(
                [("address", server.address), *(("vkey", vkey) for vkey in vkeys), *(("log", log) for log in keys)]
            )
        sys.stdout.flush()
        until(stop)


def until(stop: threading.Event) -> None:
    """Wait for the end."""
    while not stop.wait(3600):
        pass


def load_cosigners(path: Path, name: str) -> list[Cosigner]:
    """Both halves of the hybrid key in this file, which is made where there is none."""
    if not path.exists():
        create_key(path, name, hybrid=True)
    signer = load_signer(path)
    return [Cosigner(signer.name, signer.key), *(c for c in signer.companions if isinstance(c, Cosigner))]
