"""A bundle of recorded evaluations, judged by who has the model's folder and nothing else: as it was exported, with each file
altered, and with altered files that its operator attested."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sessions import made_once

from ledger import LogCheckpoint, Signer, VerifierKey, default_key_path, load_signer
from marin.data.template import plain_template
from marin.export.card import CARD, CHAT_TEMPLATE
from marin.plugins.evaluation.bundle import layout as bundle
from marin.plugins.evaluation.bundle.judge import verify_bundle
from marin.recipe.schema import Execution
from marin.record.attestation import attested, digests
from marin.record.root import open_root
from marin.record.trust.pins import Pin, PinCheck, Pins
from tests.e2e.conftest import Project
from tests.e2e.models.test_evaluation import PAIR

pytestmark = pytest.mark.evaluation


@pytest.fixture(scope="module")
def exported(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with one recorded evaluation, its model in ``model``, its bundle in ``bundle``; nobody may change it."""

    def make(base: Path) -> None:
        project = trained.copy(base)
        tasks = project.folder / "tasks"
        tasks.mkdir()
        (tasks / "pairs.yaml").write_text(PAIR, encoding="utf-8")
        rows = [{"good": f"the dog {word}s", "bad": f"the dog {word}"} for word in ("run", "sit", "wait")]
        (tasks / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        for asked in (
            ("eval", "latest", "--tasks", "pairs"),
            ("eval", "latest", "--tasks", "pairs", "--step", "3"),
            ("export", "latest", "--hf", "model", "--eval-bundle", "bundle"),
        ):
            done = project.marin(*asked)
            assert done.returncode == 0, done.stderr
        assert "left out: events" in done.stderr

    base = made_once(tmp_path_factory, "exported", make)
    return Project(base / "project", base / "home", trained.warm)


@pytest.fixture
def brought(exported: Project, tmp_path: Path) -> Path:
    """What a stranger has: ``model`` and ``bundle``."""
    for name in ("model", "bundle"):
        shutil.copytree(exported.folder / name, tmp_path / name)
    return tmp_path


def signer_of(project: Project) -> Signer:
    origin = (project.root / "vkey").read_text().split("+", 1)[0]
    name = default_key_path(origin).name
    return load_signer(next((project.home / "config").rglob(name)))


def verified(project: Project, place: Path, *arguments: str) -> tuple[int, Any]:
    """By a stranger, who was told the log's key."""
    key = (project.root / "vkey").read_text().splitlines()[0]
    stranger = Project(place, place / "stranger", project.warm)
    (place / "stranger").mkdir()
    (place / "stranger" / "cache").symlink_to((project.home / "cache").resolve())
    done = stranger.marin("-q", "verify", "model", "--bundle", "bundle", "--json", "--vkey", key, *arguments)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def ledger(project: Project, place: Path) -> str:
    """What step 1 to 3 say, in this process."""
    key = VerifierKey.parse((project.root / "vkey").read_text().splitlines()[0])
    report = verify_bundle(place / "bundle", place / "model", [key], Execution(), None)
    assert (report.verdict("ledger").outcome, report.exit_code()) == ("FAIL", 1), report
    return "\n".join(report.verdict("ledger").lines)


def test_a_stranger_judges_it_with_the_model_alone(exported: Project, brought: Path) -> None:
    status, report = verified(exported, brought)
    assert (status, report["verdicts"]["ledger"], report["verdicts"]["evaluation"]) == (0, "PASS", "PASS"), report
    assert (report["evaluation"]["recorded"], report["evaluation"]["requests_answered"]) == (1, 6)
    assert report["remarks"][0].startswith("confined: files (Landlock"), report["remarks"]
    (place,) = (brought / "bundle" / "evaluations").iterdir()
    said = json.loads((place / "harness" / "results.json").read_text())
    assert 0 <= said["results"]["pairs"]["acc,none"] <= 1 and said["config"]["model_args"]["step"] == 6
    lines = (place / "harness" / "samples_pairs.jsonl").read_text().splitlines()
    assert [
        set(json.loads(line)) >= {"doc", "arguments", "filtered_resps", "acc", "prompt_hash"} for line in lines
    ] == [True] * 3


def test_a_card_beside_the_model_is_no_part_of_it_and_another_file_is(exported: Project, brought: Path) -> None:
    (brought / "model" / CARD).write_text("anything")
    (brought / "model" / CHAT_TEMPLATE).write_text(plain_template().text)
    status, report = verified(exported, brought)
    assert (status, report["verdicts"]["evaluation"]) == (0, "PASS"), report
    (brought / "model" / "notes.txt").write_text("of somebody else")
    shutil.rmtree(brought / "stranger")
    status, report = verified(exported, brought)
    assert (status, report["verdicts"]["evaluation"]) == (1, "FAIL"), report
    assert "model folder: expected sha256:" in report["evaluation"]["first_difference"]


def test_each_altered_file_is_found_and_named(exported: Project, brought: Path) -> None:
    files = sorted(path for path in (brought / "bundle").rglob("*") if path.is_file())
    assert len(files) == 13
    for path in files:
        whole, name = path.read_bytes(), path.relative_to(brought / "bundle").as_posix()
        for altered in (whole[:-2], whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:], b""):
            path.write_bytes(altered)
            assert name in ledger(exported, brought), name
        path.unlink()
        if name != bundle.ATTESTATION:
            assert name in ledger(exported, brought)
        path.write_bytes(whole)
    (brought / "bundle" / "another").write_bytes(b"")
    assert "another" in ledger(exported, brought)
    (brought / "bundle" / "another").unlink()
    (brought / "bundle" / "link").symlink_to("/etc/passwd")
    assert "link" in ledger(exported, brought)


def attested_again(project: Project, place: Path, **more: object) -> None:
    """By the operator, whose key signs whatever is wanted."""
    from marin.record.attestation import attestation

    path, signer = place / "bundle" / bundle.ATTESTATION, signer_of(project)
    said = dict(attested(path.read_bytes(), [signer.verifier], bundle.PREDICATE).said)
    path.write_bytes(attestation(digests(path.parent, path.name), bundle.PREDICATE, said | more, signer))


def swapped(place: Path) -> None:
    one, other = (place / "bundle" / bundle.proof_of(step) for step in ("train", "tokenizer"))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def renumbered(place: Path) -> None:
    (found,) = (place / "bundle" / "evaluations").iterdir()
    found.rename(found.with_name("1"))


def entry(place: Path) -> None:
    path = place / "bundle" / bundle.proof_of("started")
    path.write_text(path.read_text().replace("index ", "index 1", 1))


def remembered(exported: Project, folder: Path, *, root: bytes = b"", later: tuple[VerifierKey, ...] = ()) -> None:
    """What the stranger saw of the log before: under another ``root``, or signed by a ``later`` key."""
    place = open_root(str(exported.root))
    now, keys = place.reader([place.verifier]).checkpoint(), (place.verifier,)
    seen = LogCheckpoint(now.origin, now.size - bool(later), root or now.root)
    Pins(folder).keep(PinCheck("", Pin(seen, (*keys, *later), later or keys), None))


def test_what_was_seen_of_the_log_is_held_against_a_bundle(
    exported: Project, brought: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As against a dossier: the one function that asks pins is asked here too."""
    monkeypatch.chdir(brought)
    monkeypatch.setenv("MARIN_PINS", str(brought / "another"))
    remembered(exported, brought / "another", root=b"\x01" * 32)
    assert "another history" in ledger(exported, brought)
    monkeypatch.setenv("MARIN_PINS", str(brought / "later"))
    origin = (exported.root / "vkey").read_text().split("+", 1)[0]
    remembered(exported, brought / "later", later=(Signer(origin, Ed25519PrivateKey.generate()).verifier,))
    assert "had given up" in ledger(exported, brought)


@pytest.mark.parametrize(
    ("alter", "said"), [(swapped, "something else"), (renumbered, "another event"), (entry, "root")]
)
def test_attested_proofs_that_prove_something_else_are_refused(
    exported: Project, brought: Path, alter: Callable[[Path], None], said: str
) -> None:
    alter(brought)
    attested_again(exported, brought)
    assert said in ledger(exported, brought)


@pytest.mark.parametrize(
    "more",
    [
        {"run": "another"},
        {"model": f"sha256:{'0' * 64}"},
        {"evaluations": {"41": {"mmlu": {"acc,none": "0x1p-1"}}}},
        {"lawful": True},
    ],
    ids=["run", "model", "numbers", "a word more"],
)
def test_what_is_said_of_the_files_follows_from_their_events(
    exported: Project, brought: Path, more: dict[str, object]
) -> None:
    attested_again(exported, brought, **more)
    assert "does not follow from its events" in ledger(exported, brought)


def test_a_bundle_of_no_evaluation_says_nothing(exported: Project, brought: Path) -> None:
    shutil.rmtree(brought / "bundle" / bundle.EVALUATIONS)
    (brought / "bundle" / bundle.EVALUATIONS).mkdir()
    attested_again(exported, brought, evaluations={})
    assert "a bundle of no evaluation" in ledger(exported, brought)


def edited(place: Path, name: str, old: str, new: str) -> None:
    (path,) = (place / "bundle").glob(f"evaluations/*/{name}")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize(
    ("alter", "said"),
    [
        (lambda place: edited(place, "harness/results.json", '"acc,none": ', '"acc,none": 1'), "harness/results.json"),
        (
            lambda place: edited(place, "tree/tasks/pairs.json", '"doc_to_target": 0', '"doc_to_target": 1'),
            "stored tree",
        ),
        (lambda place: (place / "model" / "config.json").write_text("{}"), "model folder"),
    ],
    ids=["numbers", "gold answer", "model"],
)
def test_attested_files_that_do_not_follow_are_refused(
    exported: Project, brought: Path, alter: Callable[[Path], None], said: str
) -> None:
    alter(brought)
    attested_again(exported, brought)
    status, report = verified(exported, brought)
    assert (status, report["verdicts"]["ledger"], report["verdicts"]["evaluation"]) == (1, "PASS", "FAIL"), report
    assert said in report["evaluation"]["first_difference"]
    content = (brought / "bundle" / bundle.ATTESTATION).read_bytes()
    assert len(attested(content, [signer_of(exported).verifier], bundle.PREDICATE).files) == 12


def test_what_is_no_bundle_is_said(exported: Project, brought: Path) -> None:
    (brought / "bundle" / bundle.ATTESTATION).unlink()
    done = exported.marin("verify", str(brought / "model"), "--bundle", str(brought / "bundle"))
    assert (done.returncode, "Traceback" in done.stderr) == (2, False) and bundle.ATTESTATION in done.stderr
    done = exported.marin("export", "latest", "--eval-bundle", str(brought / "model"))
    assert done.returncode == 2 and "empty folder" in done.stderr
