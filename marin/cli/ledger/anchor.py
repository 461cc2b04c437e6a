"""`marin ledger anchor`: tie the log's root to a time, by an authority's stamp or by a commit in Git."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ledger import ANCHORED, Storage, load_authorities, pem_bytes, stamp_checkpoint
from marin.cli.output import describe_vouched, print_json, say
from marin.cli.verifying.sources import git_option, policy_option
from marin.errors import UsageError
from marin.record.root import Root, open_root
from marin.record.trust.anchors import trailer_of, write_note
from marin.record.trust.evidence import AUTHORITIES, Evidence, gather, sources, trusted_authorities
from marin.record.trust.trusted import CLAIMED


@click.command()
@click.option("--tsa", metavar="URL", help="Ask this RFC 3161 authority for a time stamp, and record it as an event.")
@click.option(
    "--ca",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Certificates (PEM) of authorities to trust.  [env: MARIN_TSA_CA; default: `marin trust`, the system's]",
)
@policy_option
@git_option
@click.option("--git-note", metavar="COMMIT", help="Put the signed checkpoint into a Git note on this commit.")
@click.option(
    "--git-trailer", is_flag=True, help='Print the trailer for a commit message: git commit --trailer "$(...)".'
)
@click.option(
    "--check", "checking", is_flag=True, help="Check the anchors and witnesses that you trust, and say what they show."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def anchor(
    tsa: str | None,
    ca: Path | None,
    policy: Path | None,
    git: tuple[Path, ...],
    git_note: str | None,
    git_trailer: bool,
    checking: bool,
    as_json: bool,
) -> None:
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
    if sum([tsa is not None, git_note is not None, git_trailer, checking]) != 1:
        raise UsageError(
            "one way to anchor at a time",
            expected="one of --tsa, --git-note, --git-trailer, --check",
            cure="see `marin ledger anchor --help`",
        )
    root = open_root()
    if tsa is not None:
        _stamp(root, tsa, ca, as_json=as_json)
    elif git_note is not None:
        reader = root.reader()
        commit = write_note(Path(), git_note, reader.note())
        _say(
            {"kind": "git-note", "commit": commit, "size": reader.checkpoint().size},
            f"the root of {reader.checkpoint().size} events is in a note on {commit}",
            as_json=as_json,
        )
    elif git_trailer:
        checkpoint = root.reader().checkpoint()
        _say(
            {"kind": "git-trailer", "trailer": trailer_of(checkpoint), "size": checkpoint.size},
            trailer_of(checkpoint),
            as_json=as_json,
        )
    else:
        _print_evidence(evidence_of(root, policy, ca, git), as_json=as_json)


def evidence_of(root: Root, policy: Path | None = None, ca: Path | None = None, git: Sequence[Path] = ()) -> Evidence:
    """What those whom this user trusts vouch for, of this root."""
    history, keys = root.history(), root.keys().verifiers
    return gather(root.storage, root.reader(), keys, list(history.events(type=ANCHORED)), sources(policy, ca, git))


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
