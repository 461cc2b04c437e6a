"""`marin ledger anchor`: tie the log's root to a time, by an authority's stamp or by a commit in Git."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from ledger import ANCHORED, Storage, load_authorities, pem_bytes, stamp_checkpoint
from marin.cli.options import THERE, flag, option, takes
from marin.cli.output import print_json, say
from marin.cli.tables import describe_vouched
from marin.cli.verifying.sources import git_option, policy_option
from marin.errors import UsageError
from marin.record.root import Root, open_root
from marin.record.trust.anchors import trailer_of, write_note
from marin.record.trust.evidence import AUTHORITIES, Evidence, sources, trusted_authorities
from marin.record.trust.trusted import CLAIMED


@dataclass(frozen=True)
class AnchorOptions:
    """What `marin ledger anchor` takes."""

    tsa: str | None = option("URL", "Ask this RFC 3161 authority for a time stamp, and record it as an event.")
    ca: Path | None = option(
        "FILE",
        "Certificates (PEM) of authorities to trust.  [env: MARIN_TSA_CA; default: `marin trust`, the system's]",
        type=THERE,
    )
    policy: Path | None = policy_option()
    git: tuple[Path, ...] = git_option()
    git_note: str | None = option("COMMIT", "Put the signed checkpoint into a Git note on this commit.")
    git_trailer: bool = flag('Print the trailer for a commit message: git commit --trailer "$(...)".')
    checking: bool = flag("Check the anchors and witnesses that you trust, and say what they show.", "--check")
    as_json: bool = flag("Print one JSON object.", "--json")


@click.command()
@takes(AnchorOptions)
def anchor(options: AnchorOptions) -> None:
    """Show later that the events so far existed by now: a time stamp of the log's root, or the root in Git.

    `marin ledger fsck`, `marin verify` and --check say which events existed before which time, and fail when an anchor
    contradicts the log.

    \b
    Examples:
      marin ledger anchor --tsa https://freetsa.org/tsr --ca freetsa.pem
      marin ledger anchor --git-note HEAD
      git commit --trailer "$(marin ledger anchor --git-trailer)"
      marin ledger anchor --check --ca freetsa.pem --git . --json
    """
    if sum([options.tsa is not None, options.git_note is not None, options.git_trailer, options.checking]) != 1:
        raise UsageError(
            "one way to anchor at a time",
            expected="one of --tsa, --git-note, --git-trailer, --check",
            cure="see `marin ledger anchor --help`",
        )
    root = open_root()
    if options.tsa is not None:
        _stamp(root, options.tsa, options.ca, as_json=options.as_json)
    elif options.git_note is not None:
        reader = root.reader()
        commit = write_note(Path(), options.git_note, reader.note())
        _say(
            {"kind": "git-note", "commit": commit, "size": reader.checkpoint().size},
            f"the root of {reader.checkpoint().size} events is in a note on {commit}",
            as_json=options.as_json,
        )
    elif options.git_trailer:
        checkpoint = root.reader().checkpoint()
        _say(
            {"kind": "git-trailer", "trailer": trailer_of(checkpoint), "size": checkpoint.size},
            trailer_of(checkpoint),
            as_json=options.as_json,
        )
    else:
        _print_evidence(evidence_of(root, options.policy, options.ca, options.git), as_json=options.as_json)


def evidence_of(root: Root, policy: Path | None = None, ca: Path | None = None, git: Sequence[Path] = ()) -> Evidence:
    """What those whom this user trusts vouch for, of this root."""
    history, keys = root.history(), root.keys().verifiers
    return sources(policy, ca, git).gather(root.storage, root.reader(), keys, list(history.events(type=ANCHORED)))


def _stamp(root: Root, address: str, ca: Path | None, *, as_json: bool) -> None:
    checkpoint = root.reader().checkpoint()
    if not checkpoint.size:
        raise UsageError(
            "there is nothing to anchor",
            where=root.location,
            expected="a log with events",
            found="none",
            cure="append something first",
        )
    authorities = trusted_authorities(ca)
    draft, time = stamp_checkpoint(checkpoint, address, authorities)
    receipt = root.append([draft])[0]
    if ca is not None:
        _keep(root.storage, ca)
    _say(
        {
            "kind": "rfc3161",
            "index": receipt.index,
            "size": checkpoint.size,
            "root": checkpoint.root.hex(),
            "time": time,
        },
        f"events 0 to {checkpoint.size - 1} existed before {time}: event {receipt.index} holds the stamp",
        as_json=as_json,
    )


def _keep(storage: Storage, ca: Path) -> None:
    """Add the certificates to those that the root brings, so that a reader sees which they may trust."""
    before = storage.read(AUTHORITIES) if storage.exists(AUTHORITIES) else b""
    fresh = [certificate for certificate in load_authorities(ca) if pem_bytes([certificate]) not in before]
    if fresh:
        storage.replace(AUTHORITIES, before + pem_bytes(fresh))


def _print_evidence(evidence: Evidence, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "vouched": [describe_vouched(one) for one in evidence.vouched],
                "findings": [str(finding) for finding in evidence.findings],
                "undecided": list(evidence.undecided),
                "claimed": list(evidence.claimed),
            }
        )
    else:
        for line in (*evidence.vouched, *evidence.findings):
            say(str(line))
        for text in evidence.claimed:
            say(f"{CLAIMED} {text}")
        for text in evidence.undecided:
            say(text, err=True)
        if not (evidence.vouched or evidence.findings or evidence.undecided):
            say("nobody whom you trust vouches for this log yet", err=True)
    if evidence.findings:
        click.get_current_context().exit(1)
    if evidence.undecided:
        click.get_current_context().exit(3)


def _say(value: dict[str, object], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        say(text)
