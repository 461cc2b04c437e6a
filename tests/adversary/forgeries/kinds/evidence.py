"""Classes 5 and 7 to 9: code that lies beside the record, evidence that the accused brings, keys, shipped read models."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from ledger import Draft, Log, Projection, create_key, open_storage
from marin.record import events as kinds
from tests.adversary.forgeries.registry import kind
from tests.adversary.forgeries.stranger import Asked
from tests.adversary.forgeries.workshop import OTHER, Shop

INSIDE = Asked(inside=True)
EXISTED = "existed before"


def _marker(shop: Shop) -> Path:
    return shop.folder / "executed"


def _not_executed(shop: Shop) -> bool:
    return not _marker(shop).exists()


def _program(shop: Shop) -> Path:
    """A program that leaves a mark, which everything below names."""
    program = shop.path.parent / "helper.sh"
    program.write_text(f"#!/bin/sh\ntouch {_marker(shop)}\nexit 1\n")
    program.chmod(0o755)
    return program


def _git(folder: Path, *arguments: str, **variables: str) -> str:
    told = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PATH": os.environ["PATH"]}
    names = {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=told | names | variables, capture_output=True, text=True, check=True
    )
    return done.stdout


def _repository(folder: Path, message: str = "x", date: str = "2001-01-01T00:00:00Z") -> None:
    _git(folder, "init", "--quiet")
    _git(folder, "commit", "--quiet", "--allow-empty", "-m", message, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)


def _hostile(shop: Shop, config: Path) -> None:
    """Every setting that makes Git start a program."""
    program = _program(shop)
    with config.open("a") as file:
        file.write(
            f"[core]\n\tfsmonitor = {program}\n\tpager = {program}\n\tsshCommand = {program}\n\thooksPath = .\n"
            f"\tattributesFile = attributes\n[gpg]\n\tprogram = {program}\n[log]\n\tshowSignature = true\n"
            f'[diff]\n\texternal = {program}\n[filter "x"]\n\tclean = {program}\n\tsmudge = {program}\n'
            f"[credential]\n\thelper = {program}\n[alias]\n\tlog = !{program}\n"
        )


@kind(5, "a Git configuration that names programs", by="publisher", harmless=True, proof=_not_executed, asked=INSIDE)
def configuration(shop: Shop) -> None:
    from marin.record.trust.anchors import trailer_of

    folder = shop.path.parent
    shop.sign()
    _repository(folder, message=f"x\n\n{trailer_of(shop.root.reader().checkpoint())}")
    signed = _git(folder, "cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n", 1
    )
    (shop.folder / "commit").write_text(signed)
    name = _git(folder, "hash-object", "-t", "commit", "-w", str(shop.folder / "commit"), "--literally").strip()
    _git(folder, "update-ref", "refs/heads/signed", name)
    _hostile(shop, folder / ".git" / "config")


@kind(5, "a bare repository as the folder that is published", harmless=True, proof=_not_executed, asked=INSIDE)
def bare(shop: Shop) -> None:
    folder = shop.path.parent
    (folder / "objects").mkdir()
    (folder / "refs" / "heads").mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
    _hostile(shop, folder / "config")


@kind(5, "hooks beside the record", harmless=True, proof=_not_executed, asked=INSIDE)
def hooks(shop: Shop) -> None:
    folder = shop.path.parent
    _repository(folder)
    for name in ("post-checkout", "pre-commit", "reference-transaction", "post-index-change", "fsmonitor-watchman"):
        shutil.copy(_program(shop), folder / ".git" / "hooks" / name)


@kind(5, "Python files where the verifier stands", harmless=True, proof=_not_executed, asked=INSIDE)
def modules(shop: Shop) -> None:
    for name in ("jax.py", "marin.py", "sitecustomize.py", "conftest.py", "tensorstore.py", "git.py"):
        (shop.path.parent / name).write_text(f"open({str(_marker(shop))!r}, 'w')\n")


@kind(5, "a commit that is an option of Git", claimed="--upload-pack", proof=_not_executed)
def option(shop: Shop) -> None:
    shop.one(kinds.RUN_STARTED).body["code"]["commit"] = f"--upload-pack={_program(shop)}"


# 7


@kind(7, "a backdated Git trailer beside the record", by="publisher", harmless=True, unsaid=EXISTED, asked=INSIDE)
def trailer(shop: Shop) -> None:
    from marin.record.trust.anchors import trailer_of

    shop.sign()
    checkpoint = shop.root.reader().checkpoint()
    _repository(shop.path.parent, message=f"honest\n\n{trailer_of(checkpoint)}", date="2001-01-01T00:00:00Z")


@kind(7, "certificates of an authority in the root", harmless=True, unsaid=EXISTED)
def authorities(shop: Shop) -> None:
    from ssl import get_default_verify_paths

    found = Path(get_default_verify_paths().cafile or "")
    shop.replace_file("authorities.pem", found.read_bytes()[:4000] if found.is_file() else b"")


@kind(7, "words of praise for a policy of witnesses", unsaid="witnesses", harmless=True)
def policy(shop: Shop) -> None:
    shop.replace_file("witness-policy", b"log none\nwitness google example.org+1+AAAA\nquorum google\n")


@kind(7, "an in-toto statement in the root", harmless=True)
def statement(shop: Shop) -> None:
    shop.replace_file("attestations/verified.json", b'{"verdict": "PASS"}')


@kind(7, "a verdict of somebody else, in their words", claimed="verified")
def somebody(shop: Shop) -> None:
    verdicts = dict.fromkeys(("ledger", "artifacts", "data", "training", "model"), "PASS")
    body = {"run": shop.run, "verdicts": verdicts, "training": {"mode": "full"}, "first_divergence": None}
    shop.add(kinds.REPLAY_COMPLETED, body | {"log_checkpoint": {"size": 1}, "details": {}, "environment": {}})
    shop.events[-1].actor = "University of Somewhere"


# 8


@kind(8, "a log that was cut short", asked=Asked(before=True))
def rollback(shop: Shop) -> None:
    last = max(shop.place(entry) for entry in shop.all(kinds.RUN_COMPLETED))
    shop.events = shop.events[: last + 1] if last + 1 < len(shop.events) else shop.events[:-1]


@kind(8, "a log that was written anew", asked=Asked(before=True), says="")
def fork(shop: Shop) -> None:
    for entry in shop.events:
        entry.actor = "somebody"


def _signed_by_another(shop: Shop, name: str, *, vkey: bool) -> None:
    signer = create_key(shop.folder / "other.key", name)
    storage = open_storage(str(shop.path))
    shutil.rmtree(shop.path / "log")
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append([Draft(e.type, e.stream, e.body, id=e.id, actor=e.actor, time=e.time) for e in shop.events])
    if vkey:
        shop.replace_file("vkey", f"{signer.verifier}\n".encode())


@kind(8, "another key under the same name", by="publisher")
def other_key(shop: Shop) -> None:
    _signed_by_another(shop, shop.base.root.verifier.name, vkey=True)


@kind(8, "another key under another name", by="publisher")
def other_name(shop: Shop) -> None:
    _signed_by_another(shop, "example.org/honest", vkey=True)


@kind(8, "another key, and the operator's vkey beside it", by="publisher")
def old_vkey(shop: Shop) -> None:
    _signed_by_another(shop, shop.base.root.verifier.name, vkey=False)


@kind(8, "a checkpoint whose origin was changed", by="publisher")
def origin(shop: Shop) -> None:
    note = (shop.path / "log" / "checkpoint").read_bytes()
    name = shop.base.root.verifier.name.encode()
    shop.replace_file("log/checkpoint", note.replace(name, b"example.org/honest", 1))


@kind(8, "a checkpoint of one event less", by="publisher")
def less(shop: Shop) -> None:
    lines = (shop.path / "log" / "checkpoint").read_bytes().split(b"\n")
    lines[1] = str(int(lines[1]) - 1).encode()
    shop.replace_file("log/checkpoint", b"\n".join(lines))


@kind(8, "a checkpoint without its signature", by="publisher")
def unsigned(shop: Shop) -> None:
    note = (shop.path / "log" / "checkpoint").read_bytes()
    shop.replace_file("log/checkpoint", note.partition(b"\n\n")[0] + b"\n\n")


@kind(8, "an entry changed by the publisher", by="publisher")
def entry(shop: Shop) -> None:
    for path in sorted((shop.path / "log").rglob("*")):
        if path.is_file() and b"run.completed" in (data := path.read_bytes()):
            path.unlink()
            path.write_bytes(data.replace(b"run.completed", b"run.completee"))


@kind(8, "a key event of the publisher's", by="publisher", harmless=True)
def link(shop: Shop) -> None:
    shop.replace_file("keys/0", b"c2sp.org/tlog-proof@v1\nindex 0\n\nx\n")


# 9


def _read_model(shop: Shop, change: str) -> None:
    """A read model of the log beside it, with a change."""
    path = shop.path / "projections" / "events.sqlite"
    with Projection(path, shop.root.reader()) as projection:
        projection.catch_up()
    with closing(sqlite3.connect(path)) as database:
        database.execute(change)
        database.commit()


@kind(9, "a read model that hides an event", by="publisher", says="benchmark.completed/v1")
def hidden(shop: Shop) -> None:
    shop.add("benchmark.completed/v1", {"run": shop.run, "mmlu": "0.91"})
    shop.sign()
    _read_model(shop, "UPDATE events SET type = 'other/v1', stream = 'run/other' WHERE type LIKE 'benchmark%'")


@kind(9, "a read model that is far ahead", by="publisher", harmless=True)
def ahead(shop: Shop) -> None:
    _read_model(shop, "UPDATE cursor SET size = 1000000")


@kind(9, "a read model without the run's beginning", by="publisher", harmless=True)
def without_beginning(shop: Shop) -> None:
    _read_model(shop, "DELETE FROM events WHERE type = 'run.started/v1'")


@kind(9, "receipts and pointers that name another model", harmless=True)
def receipts(shop: Shop) -> None:
    for step in ("train", "export"):
        text = f'{{"digest": "{OTHER}", "kind": "model", "size": 1}}\n'
        shop.replace_file(f"receipts/{step}.json", text.encode())


@kind(9, "a folder of programs that somebody compiled", harmless=True, proof=_not_executed)
def compiled(shop: Shop) -> None:
    shop.replace_file("cache/jax/evil-cache", b"\x80\x04cos\nsystem\n")
