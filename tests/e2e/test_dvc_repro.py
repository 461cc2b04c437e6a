"""`dvc repro` as a stranger meets it: a checkout in Git, the real `dvc`, the real stages corpus and tokenizer.

DVC is imported once: all but the first of its commands are forks of a process that has it. `marin`, and the workers that
DVC begins, are processes of their own, with the code of their checkout.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import wait as ready
from pathlib import Path

import pytest
from warm import Warm, warmed

from marin.record.root import open_root

PROJECT = Path(__file__).resolve().parents[2]
SMALL = ("-S", "dataset.train_bytes=20000", "-S", "dataset.validation_bytes=2000", "-S", "tokenizer.vocab_size=300")

DVC = "import sys; from dvc.cli import main; sys.argv[0] = 'dvc'; sys.exit(main())"
OF_DVC = (
    *(
        "dvc.cli.parser",
        "dvc.dvcfile",
        "dvc.output",
        "dvc.parsing.context",
        "dvc.repo.datasets",
        "dvc.repo.experiments",
    ),
    *("dvc.repo.experiments.executor.local", "dvc.repo.experiments.queue.celery", "dvc.repo.index", "dvc.repo.plots"),
    *(
        "dvc.repo.reproduce",
        "dvc.stage.run",
        "dvc.utils.strictyaml",
        "dulwich.porcelain",
        "networkx",
        "pygit2",
        "pyparsing",
    ),
    *("hydra.core.override_parser.overrides_parser", "ruamel.yaml", "tabulate"),
)
"""What its commands import, most of it only when they get there."""

pytestmark = pytest.mark.e2e


@dataclass(frozen=True)
class Checkout:
    """A repository in a folder of its own, and the commands of this environment in it. ``warm``: where `dvc` is forked."""

    folder: Path
    environment: dict[str, str]
    warm: Warm

    def run(self, *command: str, status: int = 0) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == status, (command, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def dvc(self, *words: str, status: int = 0) -> str:
        """What `dvc WORD...` does and says, without the second in which it is imported."""
        done = self.warm.run(DVC, words, cwd=self.folder, environment=self.environment, timeout=300)
        assert done.returncode == status, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def worker_ends(self) -> None:
        """Wait for the worker of DVC's queue, which ends when nothing is queued."""
        told = self.folder / ".dvc" / "tmp" / "exps" / "celery" / "dvc-exp-worker-1.json"
        worker = os.pidfd_open(json.loads(told.read_text())["pid"])
        assert ready([worker], 300), "a worker without work does not end"
        os.close(worker)

    def changes(self) -> list[str]:
        return self.run("git", "status", "--porcelain").splitlines()

    def events(self) -> list[str]:
        return [event.type for _, event in open_root(str(self.folder / ".marin")).reader().events()]

    def clone(self, folder: Path) -> Checkout:
        """A clone, with the bytecode that its code has here already: Python goes by a source's size and time."""
        self.run("git", "clone", "-q", str(self.folder), str(folder))
        for name in ("marin", "ledger"):
            for source in (self.folder / name).rglob("*.py"):
                shutil.copystat(source, folder / source.relative_to(self.folder))
            for compiled in (self.folder / name).rglob("__pycache__"):
                shutil.copytree(compiled, folder / compiled.relative_to(self.folder))
        return made(folder, self.environment, self.warm)


def made(folder: Path, environment: dict[str, str], warm: Warm) -> Checkout:
    """The checkout in ``folder``, whose `marin` executes the code that lies there."""
    programs = folder.parent / f"{folder.name}-bin"
    programs.mkdir()
    command = programs / "marin"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}" exec "{sys.executable}" -P -m marin.cli.main "$@"\n')
    command.chmod(0o755)
    (programs / "dvc").symlink_to(Path(sys.executable).with_name("dvc"))
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    checkout = Checkout(folder, {**environment, "PATH": path}, warm)
    checkout.run("git", "config", "user.name", "test")
    checkout.run("git", "config", "user.email", "test@example.org")
    checkout.run("marin", "init", "--quiet")
    return checkout


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """A repository whose small experiment was run once and committed, pointers and dvc.lock included."""
    base = tmp_path_factory.mktemp("a folder")  # with a space in it
    folder = base / "published"
    folder.mkdir()
    for name in (
        "marin",
        "ledger",
        "conf",
        ".dvc",
        "dvc.yaml",
        "params.yaml",
        ".dvcignore",
        ".gitignore",
        "requirements.lock",
    ):
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("tmp", "cache", "config.local"))
        else:
            shutil.copy(source, folder / name)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("MARIN_", "DVC_", "GIT_", "PYTHON"))
    }
    environment = {
        **kept,
        "XDG_CONFIG_HOME": str(base / "config"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "DVC_NO_ANALYTICS": "1",
        "XDG_CACHE_HOME": str(base / "cache"),
        "DVC_SITE_CACHE_DIR": str(base / "site"),
    }
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True, env=environment)
    with warmed(environment, OF_DVC) as warm:
        checkout = made(folder, environment, warm)
        checkout.run("git", "add", ".")
        checkout.run("git", "commit", "-q", "-m", "code")
        checkout.run("dvc", "exp", "run", *SMALL, "tokenizer")
        checkout.run("git", "add", ".")
        checkout.run("git", "commit", "-q", "-m", "results")
        yield checkout


def test_the_experiment_executed_both_stages_in_one_run(published: Checkout) -> None:
    step = ["lease.taken/v1", "step.started/v1", "step.completed/v1", "lease.released/v1"]
    assert published.events() == ["run.started/v1", *step * 2]
    assert (published.folder / "artifacts" / "tokenizer.json").is_file()
    assert not published.run("git", "ls-files", ".marin")


def test_a_fresh_clone_executes_every_stage_and_stays_clean(published: Checkout, tmp_path: Path) -> None:
    clone = published.clone(tmp_path / "clone")
    assert clone.events() == []
    said = clone.dvc("repro", "tokenizer")
    assert said.count("executed in") == 2
    assert clone.events().count("step.completed/v1") == 2
    assert clone.changes() == []

    again = clone.dvc("repro", "tokenizer")
    assert "nothing to do" in again, "the corpus always looks"
    assert "marin stage tokenizer" not in again
    assert len(clone.events()) == 9

    # A flipped digit in a pointer: DVC calls the stage, and the stage writes the pointer from the ledger.
    pointer = clone.folder / "artifacts" / "corpus.json"
    good = pointer.read_text()
    pointer.write_text(good.replace("sha256:", "sha256:0", 1))
    assert "executed" not in clone.dvc("repro", "tokenizer")
    assert pointer.read_text() == good
    assert clone.changes() == []
    assert len(clone.events()) == 9, "the open run has the results: there is nothing to record"


def test_without_dvc_the_same_stages_leave_the_same_files_and_events(published: Checkout, tmp_path: Path) -> None:
    clone = published.clone(tmp_path / "clone")
    said = clone.run("marin", "repro", "tokenizer")
    assert said.count("executed in") == 2 and "dvc.lock" not in said
    assert clone.events() == published.events() and clone.changes() == []
    for receipt in ("corpus", "tokenizer"):
        name = f".marin/receipts/{receipt}.json"
        assert (clone.folder / name).read_bytes() == (published.folder / name).read_bytes()
    seen = len(clone.events())
    assert "Stage 'tokenizer' didn't change" in clone.dvc("repro", "tokenizer")
    assert len(clone.events()) == seen and clone.changes() == []

    parameters = clone.folder / "params.yaml"
    parameters.write_text(parameters.read_text().replace("vocab_size: 300", "vocab_size: 301"))
    said = clone.run("marin", "repro", "tokenizer")
    assert (
        said.count("executed in") == 1
        and "dvc.lock is of something else (first: .marin/receipts/tokenizer.json)" in said
    )
    changed = clone.events()[seen:]
    assert changed == ["run.started/v1", "step.cached/v1", *clone.events()[seen - 4 : seen]]
    assert "marin stage tokenizer" in clone.run("marin", "repro", "--dvc", "tokenizer"), "it has DVC write it"
    assert "dvc.lock" not in clone.run("marin", "repro", "--dvc", "tokenizer") and clone.events()[seen:] == changed
    assert "Stage 'tokenizer' didn't change" in clone.dvc("repro", "tokenizer")


@pytest.mark.long
def test_equal_results_of_other_code_that_were_pulled_are_made_here_too(published: Checkout, tmp_path: Path) -> None:
    """The pointers are the same; the receipts, whose digests dvc.lock has, say by which code."""
    mine, theirs = published.clone(tmp_path / "mine"), published.clone(tmp_path / "theirs")
    mine.dvc("repro", "tokenizer")
    with (theirs.folder / "marin" / "pipeline" / "tokenizer.py").open("a") as code:
        code.write("# another comment\n")
    theirs.dvc("repro", "tokenizer")
    theirs.run("git", "commit", "-q", "-a", "-m", "other code")
    assert theirs.run("git", "diff", "--name-only", "HEAD^").split() == ["dvc.lock", "marin/pipeline/tokenizer.py"]
    mine.run("git", "pull", "-q", str(theirs.folder), "main")
    assert mine.dvc("repro", "tokenizer").count("executed in") == 1
    assert mine.changes() == []
    for path in (mine.folder / ".marin").iterdir():  # another root, beside the receipts of this one
        if path.name != "receipts":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    mine.run("marin", "init", "--quiet")
    assert mine.dvc("repro", "tokenizer").count("executed in") == 2
    assert mine.changes() == []


@pytest.mark.long(seconds=40)
def test_experiments_in_folders_of_their_own_are_recorded_in_the_root_of_the_project(
    published: Checkout, tmp_path: Path
) -> None:
    """`--temp` and `--queue` work in a copy of the repository below .dvc/tmp, which has no root, with the copy's code."""
    clone = published.clone(tmp_path / "clone")
    seen = len(clone.events())
    clone.dvc("exp", "run", "--temp", "-S", "tokenizer.vocab_size=301", *SMALL[:4], "tokenizer")
    assert clone.events()[seen:].count("step.completed/v1") == 2
    code = clone.folder / "marin" / "pipeline" / "tokenizer.py"
    text = code.read_text()
    code.write_text(f"{text}\nQUEUED = True\n")
    clone.dvc("exp", "run", "--queue", "-S", "tokenizer.vocab_size=302", *SMALL[:4], "tokenizer")
    code.write_text(f"{text}\nraise AssertionError('not what was queued')\n")
    clone.dvc("exp", "run", "--run-all")
    assert clone.events().count("step.completed/v1") == 3, "the corpus was taken over"
    root = open_root(str(clone.folder / ".marin"))
    begun = [event.body["code"] for _, event in root.reader().events() if event.type == "run.started/v1"]
    assert b"+QUEUED = True" in root.store().read(begun[-1]["diff"]), "the code of the experiment, and not today's"
    code.write_text(text)
    clone.dvc("exp", "run", "--queue", "--name", "third", "-S", "tokenizer.vocab_size=303", *SMALL[:4], "tokenizer")
    clone.dvc("queue", "start")  # workers of its own, which end when nothing is queued
    clone.worker_ends()
    told = clone.dvc("queue", "status")
    assert re.search(r"third .* Success", told), told
    assert clone.events().count("step.completed/v1") == 4
    assert clone.changes() == []
    shown = clone.dvc("exp", "show", "--csv")
    assert "301" in shown and "302" in shown and "303" in shown


def test_the_code_of_another_checkout_is_refused(published: Checkout, tmp_path: Path) -> None:
    """DVC would watch files that do not execute. The same files in another place are the same code."""
    clone, installed = published.clone(tmp_path / "clone"), tmp_path / "installed"
    for name in ("marin", "ledger", "conf", "requirements.lock"):
        (shutil.copytree if (clone.folder / name).is_dir() else shutil.copy)(clone.folder / name, installed / name)
    elsewhere = replace(clone, environment={**clone.environment, "PYTHONPATH": str(installed)})
    command = (sys.executable, "-P", "-m", "marin.cli.main", "stage", "corpus")
    assert "executed in" in elsewhere.run(*command)
    with (clone.folder / "marin" / "pipeline" / "corpus.py").open("a") as code:
        code.write("\nCHANGED = True\n")
    assert "the code that is installed is not that of this checkout" in elsewhere.run(*command, status=2)


@pytest.mark.long
def test_dvc_sends_no_bytes_and_marin_store_push_does(published: Checkout, tmp_path: Path) -> None:
    clone = published.clone(tmp_path / "clone")
    clone.dvc("remote", "add", "--default", "elsewhere", str(tmp_path / "elsewhere"))
    clone.dvc("repro", "tokenizer")
    clone.dvc("push")
    assert [path for path in (tmp_path / "elsewhere").rglob("*") if path.is_file()] == []
    clone.run("marin", "store", "push", str(tmp_path / "bytes"))
    assert [path for path in (tmp_path / "bytes").rglob("*") if path.is_file()]


@pytest.mark.long(seconds=10)
def test_a_text_that_was_edited_is_never_ignored(published: Checkout, tmp_path: Path) -> None:
    clone = published.clone(tmp_path / "clone")
    text = clone.folder / "data" / "mine.txt"
    text.parent.mkdir()
    text.write_text("\n\n".join(f"Line {i} of a text." for i in range(200)))
    clone.dvc("exp", "run", "-S", "dataset=files", "corpus")
    pointer = clone.folder / "artifacts" / "corpus.json"
    before, seen = pointer.read_text(), len(clone.events())
    clone.dvc("repro", "corpus")
    assert pointer.read_text() == before and len(clone.events()) == seen
    text.write_text("\n\n".join(f"Line {i} of another text." for i in range(200)))
    clone.dvc("repro", "corpus")
    assert pointer.read_text() != before


@pytest.mark.long(seconds=15)
def test_sources_of_a_collection_that_changed_are_seen(published: Checkout, tmp_path: Path) -> None:
    clone = published.clone(tmp_path / "clone")
    pointer, lock = clone.folder / "artifacts" / "corpus.json", clone.folder / "dvc.lock"
    source = clone.folder / "crawl" / "more.jsonl"
    source.parent.mkdir()
    texts = [f"Text number {number} that nobody else wrote, about the word w{number}." for number in range(60)]

    def write(path: Path, some: list[str]) -> None:
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in some))

    def made() -> list[dict[str, object]]:
        reader = open_root(str(clone.folder / ".marin")).reader()
        return [dict(event.body) for _, event in reader.events() if event.type == "collection.completed/v1"]

    write(source.with_name("first.jsonl"), texts[:30])
    write(source, texts[30:50])
    web = ("dataset=web", "dataset.sources=[crawl/*.jsonl]", "dataset.collection=default")
    clone.dvc("exp", "run", *(word for value in web for word in ("-S", value)), "corpus")
    assert [body["kept"] for body in made()] == [50]
    first, recorded, seen = pointer.read_text(), lock.read_text(), len(clone.events())
    clone.dvc("repro", "corpus")
    assert (pointer.read_text(), lock.read_text(), len(clone.events())) == (first, recorded, seen)

    write(source, texts[40:])
    clone.dvc("repro", "corpus")
    assert pointer.read_text() != first and lock.read_text() != recorded
    assert [body["kept"] for body in made()] == [50, 50] and made()[0]["artifact"] != made()[1]["artifact"]
    assert "artifacts/corpus.json" in clone.dvc("status", "tokenizer"), "what is made of it is out of date"

    write(source, texts[30:50])
    clone.dvc("repro", "corpus")
    assert pointer.read_text() == first and len(made()) == 2, "the ledger has the first one still"


def test_metrics_are_dvcs(published: Checkout) -> None:
    shown, _ = json.JSONDecoder().raw_decode(published.dvc("metrics", "show", "--json"))
    files = shown[""]["data"]
    assert files["artifacts/metrics/tokenizer.json"]["data"]["vocab_size"] == 300.0


def test_a_bad_parameter_stops_the_stage_and_keeps_what_was_there(published: Checkout, tmp_path: Path) -> None:
    clone = published.clone(tmp_path / "clone")
    parameters = clone.folder / "params.yaml"
    text = parameters.read_text()
    parameters.write_text(text.replace("vocab_size: 300", "vocab_size: lots"))
    said = clone.run("marin", "stage", "corpus", status=2)
    (line,) = [one for one in said.splitlines() if not one.startswith("loading ")]  # which a busy machine says
    assert "params.yaml: tokenizer.vocab_size" in line and "'lots'" in line
    assert clone.events() == []
    parameters.write_text(text)
    assert clone.changes() == []


@pytest.mark.long
def test_a_group_of_the_configuration_can_be_chosen(published: Checkout, tmp_path: Path) -> None:
    text = tmp_path / "data" / "tinyshakespeare"
    text.mkdir(parents=True)
    clone = published.clone(tmp_path / "clone")
    (text / "input.txt").write_text("not what was pinned")
    environment = {**clone.environment, "MARIN_DATA": str(tmp_path / "data")}
    said = Checkout(clone.folder, environment, clone.warm).dvc(
        "exp", "run", "-S", "dataset=tinyshakespeare", "corpus", status=255
    )
    assert "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed" in said
    assert "kind: url" in (clone.folder / "params.yaml").read_text()
    assert [line for line in clone.changes() if "artifacts" in line] == []
