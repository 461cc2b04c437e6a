"""`marin ledger key`: the keys that sign this log, changing them, and ending what an old one may sign."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from ledger import Locked, follow_keys, make_certificate, open_vouched
from marin.cli.keys import parse_vkey
from marin.cli.output import print_json, say
from marin.cli.tables import print_fields, print_table
from marin.errors import UsageError
from marin.record import keys
from marin.record.root import Root, open_root
from marin.record.trust.changes import add_keys
from marin.record.trust.joined import Joined, read_invitation, split_address
from marin.record.trust.trusted import default_trust


@contextmanager
def _no_service(root: Root) -> Iterator[None]:
    """A running append service signs with the key that it was started with: say that it has to end first."""
    try:
        yield
    except Locked as error:
        if not root.endpoint.exists():
            raise
        raise Locked(
            "the append service signs this log with the present key",
            where=error.where,
            found=error.found,
            expected="no service while keys change",
            cure="stop `marin ledger serve` (SIGINT), run this again, then start it anew",
        ) from error


@click.group()
def key() -> None:
    """The keys of this log and of the people and machines that write in it, and what was attested under them.

    Changes are events of the log, with a proof of each below keys/ in the root, so that anyone who trusts an older key of
    the log finds the newer ones without asking.
    """


@key.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_(as_json: bool) -> None:
    """List the keys whose signatures count, and up to which size.

    \b
    Examples:
      marin ledger key list
    """
    root = open_root()
    signing = follow_keys(root.storage, [root.verifier])
    if as_json:
        print_json([{"id": f"{k.key_id:08x}", "vkey": str(k), "until": k.until} for k in signing])
    else:
        print_table(
            ("id", "counts", "vkey"),
            [
                (f"{k.key_id:08x}", "always" if k.until is None else f"up to size {k.until}", str(k)[:100])
                for k in signing
            ],
            empty="no keys",
        )


@key.command()
@click.option("--hybrid", is_flag=True, help="The new key signs with ML-DSA-44 (FIPS 204) beside Ed25519.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def rotate(hybrid: bool, as_json: bool) -> None:
    """Make a new key, record it in the log under the old one, and sign with it from now on.

    The old key's file is kept beside the new one, and what it signed stays valid; `retire` ends that. Publish the new
    verifier key that is printed. Interrupted, the next call finishes it.

    \b
    Examples:
      marin ledger key rotate
    """
    root = open_root()
    with _no_service(root):
        done = keys.rotate(root, hybrid=hybrid)
    if as_json:
        print_json({"vkey": str(done.new), "old": str(done.old), "key": str(done.key), "kept": str(done.kept)})
    else:
        print_fields(
            [("vkey", str(done.new)), ("key", str(done.key)), ("old vkey", str(done.old)), ("kept", str(done.kept))]
        )
        say(f"`marin ledger key retire {done.old.key_id:08x}` ends what the old key may sign", err=True)


@key.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def vouch(as_json: bool) -> None:
    """Vouch in the log for an ECDSA key on P-256, which signs attestations where the log's own key is not taken.

    The key is made on the first call, beside the log's own, with mode 0600. It signs no checkpoint and no event.
    `marin export RUN --rekor DEST` uses it.

    \b
    Examples:
      marin ledger key vouch
    """
    root = open_root()
    with _no_service(root):
        path, proof = keys.vouch(root)
    vouched = open_vouched(str(proof).encode(), [root.verifier])
    if as_json:
        print_json({"key": str(path), "index": vouched.index, "public": vouched.pem.decode()})
    else:
        print_fields([("key", str(path)), ("event", str(vouched.index))])
        say(*vouched.pem.decode().rstrip("\n").split("\n"))


@key.command()
@click.argument("name", metavar="NAME|INDEX")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def revoke(name: str, as_json: bool) -> None:
    """End a key: an author's by NAME, or by INDEX the one that an event enrolled or vouched for.

    Of an author the log takes nothing more; what was signed before stays the author's. A vouched key counts no more, whatever
    it signed and whenever; the next `vouch` makes another.

    \b
    Examples:
      marin ledger key revoke bob@gpu
      marin log --type log.key-vouched/v1
      marin ledger key revoke 12
    """
    root = open_root()
    author = next((one for one in keys.known_authors(root) if name in (one.name, str(one.index))), None)
    if author is not None:
        revoked = keys.revoke_enrolled(root, author)
        if as_json:
            print_json({"index": revoked, "author": author.name})
        else:
            say(f"event {revoked}: the log takes nothing more of {author.name}; what came before stays as it is")
        return
    if not name.isdigit():
        raise UsageError(
            "no author of that name",
            where=name[:80],
            expected="a name that `marin ledger key people` lists, or the index of an event",
            found="neither",
            cure="see `marin ledger key people`",
        )
    index = int(name)
    with _no_service(root):
        revoked = keys.revoke(root, index)
    if as_json:
        print_json({"index": revoked, "vouched": index})
    else:
        say(f"event {revoked}: attestations under the key of event {index} count no more")


@key.command()
@click.argument("name", metavar="NAME")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def new(name: str, as_json: bool) -> None:
    """Make your own key as an author in this log, and print the line that asks for its enrolment.

    From then on it signs every event that you append here. The private half stays in your configuration folder, mode 0600.
    If the log's own key is on this machine, it is enrolled at once; otherwise give the line to somebody who may enrol.

    \b
    Examples:
      marin ledger key new ada@desk
    """
    root = open_root()
    made = keys.new_author_key(root.verifier.name, name, keys.known_authors(root))
    index = keys.enrol(root, made.request)[1] if root.is_own() else None
    if as_json:
        print_json({"vkey": str(made.vkey), "key": str(made.path), "request": made.request, "index": index})
    else:
        print_fields([("author", made.vkey.name), ("key", str(made.path)), ("vkey", str(made.vkey))])
        if index is not None:
            say(f"event {index} enrols it: from now on it signs what you append")
        else:
            say(made.request)
            say("give that line to somebody who may enrol: `marin ledger key enrol LINE`", err=True)


@key.command()
@click.argument("line", metavar="LINE")
@click.option("--may-enrol", is_flag=True, help="This author may enrol and revoke others, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def enrol(line: str, may_enrol: bool, as_json: bool) -> None:
    """Enrol the person or machine whose `new` or `join` printed LINE.

    From then on the log takes what this key signs. Compare the id with what its owner sees: whose key it is, you vouch for. A
    name stands for one key, for ever. Works while `marin ledger serve` runs.

    \b
    Examples:
      marin ledger key enrol marin-author:MIIBEzCBxq...
    """
    root = open_root()
    vkey, index = keys.enrol(root, line, may_enrol=may_enrol)
    if as_json:
        print_json({"author": vkey.name, "vkey": str(vkey), "index": index, "may_enrol": may_enrol})
    else:
        say(f"event {index} enrols {vkey.name}, key {vkey.key_id:08x}")


@key.command()
@click.argument("address", metavar="HOST:PORT")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def invite(address: str, as_json: bool) -> None:
    """Print the line by which others join this log at HOST:PORT, where `marin ledger serve --at` serves it.

    The line is no secret: it says where, and by which keys the service and the log are known. Anyone who gets it through a
    channel that you both trust is safe from anybody in between.

    \b
    Examples:
      marin ledger key invite lab.example:7420
    """
    root = open_root()
    split_address(address)
    line = Joined(address, root.verifier, make_certificate(keys.service_key(root))).line()
    if as_json:
        print_json({"address": address, "invitation": line})
    else:
        say(line)
        say("give that line to them: `marin ledger key join LINE --as NAME`", err=True)


@key.command()
@click.argument("line", metavar="LINE")
@click.option("--as", "name", required=True, metavar="NAME", help="Your name as an author there, such as bob@gpu.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def join(line: str, name: str, as_json: bool) -> None:
    """Join the log on another machine to which LINE invites you, and print the line that asks for enrolment.

    The log's verifier key is trusted from then on. Once you are enrolled, MARIN_ROOT=ledger://HOST:PORT is that root, for
    every command. Running this again changes nothing; under another name it keeps a key that is not enrolled, or was revoked,
    aside.

    \b
    Examples:
      marin ledger key join marin-invitation:eyJhZGRyZXNz... --as bob@gpu
    """
    there = read_invitation(line)
    made = keys.new_author_key(there.vkey.name, name, refused=there.refuses)
    there.keep()
    add_keys(default_trust(), [there.vkey])
    if as_json:
        print_json({"root": there.location, "vkey": str(made.vkey), "key": str(made.path), "request": made.request})
    else:
        print_fields([("author", name), ("key", str(made.path)), ("vkey", str(made.vkey)), ("root", there.location)])
        say(made.request)
        say(f"give that line to somebody who may enrol; then `export MARIN_ROOT={there.location}`", err=True)


@key.command("people")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def people_(as_json: bool) -> None:
    """List the people and machines that this log enrolled, by whom, and up to where each counts.

    \b
    Examples:
      marin ledger key people
    """
    authors = keys.known_authors(open_root())
    for finding in authors.findings:
        say(f"left out: {finding}", err=True)
    if as_json:
        print_json(
            [
                {
                    "author": one.name,
                    "vkey": str(one.vkey),
                    "index": one.index,
                    "by": str(one.by),
                    "may_enrol": one.may_enrol,
                    "revoked": one.until,
                }
                for one in authors
            ]
        )
    else:
        print_table(
            ("author", "id", "enrolled", "by", "counts"),
            [
                (
                    one.name,
                    f"{one.vkey.key_id:08x}",
                    f"event {one.index}",
                    one.by.name,
                    ("may enrol" if one.may_enrol else "yes") if one.until is None else f"up to event {one.until}",
                )
                for one in authors
            ],
            empty="nobody: every event is the word of the log's own key; `marin ledger key new NAME` changes that",
        )


@key.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--vkey", "vkeys", multiple=True, required=True, metavar="KEY", help="Verifier key of the log; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def attested(folder: Path, vkeys: tuple[str, ...], as_json: bool) -> None:
    """Check a folder of `marin export --rekor` offline: key, attestations, requests. Needs no root.

    Whether the log revoked the key later, no folder can show: name the log by `--root` where you have it.

    \b
    Examples:
      marin ledger key attested for-rekor/ --vkey 'example.org/log+530d903a+AekyeRrm5...'
    """
    from marin.provenance.plugins import load_plugin  # here: other commands of keys read no attestations

    judge = load_plugin("marin.documents", "rekor", "marin ledger key attested")
    vouched, payloads, known = judge(folder, [parse_vkey(text) for text in vkeys])
    if as_json:
        told = {"origin": vouched.origin, "index": vouched.index, "attestations": len(payloads), "log": list(known)}
        print_json(told)
    else:
        say(f"{len(payloads)} attestations under the key that event {vouched.index} of {vouched.origin} vouches for")
        for line in known:
            say(line)


@key.command()
@click.argument("name", metavar="KEY")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def retire(name: str, as_json: bool) -> None:
    """From now on signatures of KEY count only for the log as it was: a verifier key, or the eight digits of its id.

    \b
    Examples:
      marin ledger key retire 1a2b3c4d
    """
    root = open_root()
    with _no_service(root):
        retired, until = keys.retire(root, name)
    if as_json:
        print_json({"vkey": str(retired), "until": until})
    else:
        say(f"{retired.name}+{retired.key_id:08x} counts up to size {until}, and no further")
