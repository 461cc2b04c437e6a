"""`marin verify` on a real run: what was trained on eight devices is replayed on one, and every damage is found and
named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

FORGE = """
import json, sys
from pathlib import Path
from ledger import Draft, Log
from marin.record.root import open_root
kind, field, value = sys.argv[1:4]
root = open_root()
signer = root.signer()
drafts = []
for _, event in root.reader().events():
    body = dict(event.body)
    if event.type == kind:
        parts = field.split(".")
        inner = body
        for part in parts[:-1]:
            inner = inner[int(part) if isinstance(inner, list) else part]
        last = int(parts[-1]) if isinstance(inner, list) else parts[-1]
        inner[last] = json.loads(value)
        kind = None
    drafts.append(Draft(event.type, event.stream, body, id=event.id, actor=event.actor, time=event.time))
import shutil
shutil.rmtree(".marin/log"); shutil.rmtree(".marin/projections", ignore_errors=True)
Log.create(root.storage, signer)
with Log.open(root.storage, signer) as log:
    log.append(drafts)
"""

ARM = """
import sys
from pathlib import Path
import msgspec
from marin.recipe.params import load_params
from marin.pipeline.stages import PIPELINE
from marin.execution.plan import Plan
from marin.execution.executor import run_stage
from marin.record.root import open_root
from marin.history.runs import load, resolve
recipe, root = load_params(Path("params.yaml")), open_root()
named, pinned = {}, {}
if sys.argv[1] == "pinned":
    corpus = load(root.history(), resolve(root.history(), "latest")).steps["corpus"]
    recipe = msgspec.structs.replace(recipe, dataset=msgspec.structs.replace(recipe.dataset, train_bytes=70_000))
    named, pinned = {"corpus": corpus.output.artifact}, {"corpus": corpus}
plan = Plan("arm", PIPELINE.steps[:-1], named)
for step in plan.steps[bool(pinned):]:
    assert run_stage(step.name, plan=plan, recipe=recipe, root=root, project=None, pinned=pinned).action != "executed"
"""


def flip(path: Path, at: int) -> None:
    """Change one bit of a stored file, whatever its mode."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.chmod(0o644)
    path.write_bytes(bytes(data))


@pytest.mark.long(seconds=25)
def test_trained_on_eight_devices_verified_on_one(project: Project) -> None:
    status, report = project.verify()
    assert (status, set(report["verdicts"].values())) == (0, {"PASS"}), report
    assert report["training"] | {"seconds": 0} == {
        "mode": "full",
        "segments_total": 2,
        "segments_replayed": 2,
        "workers": 1,
        "seconds": 0,
    }
    assert report["first_divergence"] is None
    recorded = json.loads(project.marin("show", str(report["event"]), "--json").stdout)
    assert recorded["type"] == "replay.completed/v1"
    assert recorded["body"]["verdicts"] == report["verdicts"]


def test_only_what_was_asked_for_runs(project: Project) -> None:
    status, report = project.verify("--only", "ledger,artifacts", "--no-record")
    assert status == 0
    assert report["verdicts"] == {
        "ledger": "PASS",
        "artifacts": "PASS",
        "data": "NOT_RUN",
        "training": "NOT_RUN",
        "model": "NOT_RUN",
        "evaluation": "NOT_RUN",
    }
    assert report["event"] is None


@pytest.mark.long
def test_the_key_that_a_root_brings_is_its_own_word(project: Project) -> None:
    """An honest run of somebody else: a verifier that has no own key for the log, and was given none, believes nothing."""
    (key,) = (project.home / "config").rglob("*.key")
    key.rename(project.home / "the-operators.key")
    vkey = (project.root / "vkey").read_text(encoding="utf-8").strip()

    def judged(*arguments: str) -> tuple[str, bool]:
        report = project.verify("--only", "ledger", "--no-record", *arguments)[1]
        details = " ".join(report["details"]["ledger"])
        return report["verdicts"]["ledger"], "no key of yours signed this log" in details

    assert judged() == ("UNAVAILABLE", True)
    assert judged("--vkey", vkey) == ("PASS", False)
    assert project.marin("trust", "add", "--vkey", vkey).returncode == 0
    assert judged() == ("PASS", False)
    assert project.marin("trust", "rm", vkey.split("+")[0]).returncode == 0
    assert judged() == ("UNAVAILABLE", True)


@pytest.mark.long
def test_an_arm_of_an_experiment_is_judged_by_the_steps_that_it_has(project: Project) -> None:
    project.forked(ARM, "whole")
    status, report = project.verify("--only", "ledger,data,model", "--no-record")
    assert (status, [report["verdicts"][name] for name in ("ledger", "data", "model")]) == (0, ["PASS"] * 3), report


def test_a_pinned_corpus_is_said_and_neither_proven_nor_accused(project: Project) -> None:
    project.forked(ARM, "pinned")
    status, report = project.verify("--only", "ledger,data", "--no-record")
    assert (status, report["verdicts"]["ledger"], report["verdicts"]["data"]) == (3, "PASS", "UNAVAILABLE"), report


def blob_of(project: Project, kind: str) -> Path:
    """The largest blob of the training checkpoint after step 3."""
    shown = json.loads(project.marin("show", "latest", "--json").stdout)
    tree = next(saved["artifact"] for saved in shown["checkpoints"] if saved["step"] == 3)
    manifest = json.loads(project.marin("store", "ls", tree, "--json").stdout.splitlines()[0])
    entries = (
        manifest["entries"]
        if "entries" in manifest
        else [json.loads(line) for line in project.marin("store", "ls", tree, "--json").stdout.splitlines()]
    )
    digest = max(entries, key=lambda entry: int(entry["size"]))["digest"].removeprefix("sha256:")
    (path,) = (
        path
        for path in (project.root / "store").rglob("*")
        if path.is_file() and "".join(path.relative_to(project.root / "store").parts).endswith(digest)
    )
    return path


def test_a_flipped_byte_in_a_stored_checkpoint_is_named(project: Project) -> None:
    path = blob_of(project, "checkpoint")
    flip(path, path.stat().st_size // 2)
    status, report = project.verify("--only", "ledger,artifacts")
    assert (status, report["verdicts"]["ledger"], report["verdicts"]["artifacts"]) == (1, "PASS", "FAIL")
    (line,) = report["details"]["artifacts"]
    assert "training checkpoint of step 3" in line
    assert path.name[-16:] in line.replace("/", "")


def test_a_missing_blob_is_unavailable_and_not_a_failure(project: Project) -> None:
    path = blob_of(project, "checkpoint")
    path.unlink()
    status, report = project.verify("--only", "artifacts", "--no-record")
    assert (status, report["verdicts"]["artifacts"]) == (3, "UNAVAILABLE"), report
    assert path.name[-16:] in "".join(report["details"]["artifacts"]).replace("/", "")


@pytest.mark.parametrize("where", ["tile/0", "tile/entries"])
def test_a_flipped_byte_in_a_tile_or_an_event_is_named(project: Project, where: str) -> None:
    (path, *_) = sorted(path for path in (project.root / "log" / where).rglob("*") if path.is_file())
    flip(path, path.stat().st_size // 2)
    page = project.folder / "report.html"
    page.write_text("PASS, says a page of yesterday")
    status, report = project.verify("--only", "ledger", "--no-record", "--html", str(page))
    assert (status, report["verdicts"]["ledger"]) == (1, "FAIL")
    assert where.rpartition("/")[2] in "".join(report["details"]["ledger"])
    assert "FAIL" in page.read_text(encoding="utf-8") and "PASS" not in page.read_text(encoding="utf-8")


FORGERIES = {
    "loss": ("train.segment/v1", "losses.1", '"0x1.0p+1"', 1, "loss"),
    "batch": ("train.segment/v1", "batches.2", '"sha256:%s"' % ("0" * 64), 2, "tokens"),
    "fingerprint": ("train.segment/v1", "fingerprints.1", '"sha256:%s"' % ("0" * 64), 1, "differ"),
    "state": ("train.segment/v1", "end_state", '"sha256:%s"' % ("0" * 64), 3, "state"),
    # The first step has rate 0 of the warm-up, the second has not.
    "recipe": ("run.started/v1", "recipe.optimizer.learning_rate", '"0x1.0p-9"', 1, ""),
}


@pytest.mark.table
@pytest.mark.parametrize("name", list(FORGERIES))
def test_a_dishonest_operator_is_found_by_replay(project: Project, name: str) -> None:
    """Of a log that its operator signed again."""
    kind, field, value, step, word = FORGERIES[name]
    project.forked(FORGE, kind, field, value)
    status, report = project.verify("--only", "ledger,training", "--no-record")
    # A state is named by two events, and they contradict each other; the rest only replay can find.
    if name != "recipe":
        assert report["verdicts"]["ledger"] == ("FAIL" if name == "state" else "PASS")
    assert (status, report["verdicts"]["training"]) == (1, "FAIL"), report
    assert report["first_divergence"]["step"] == step
    assert word in report["first_divergence"]["explanation"]


def test_a_log_that_was_rolled_back_is_found(project: Project) -> None:
    assert project.verify("--only", "ledger")[0] == 0  # records an event: pins a size, then grows
    assert project.verify("--only", "ledger", "--no-record")[0] == 0
    project.forked(FORGE, "run.started/v1", "pipeline", '"another"')
    status, report = project.verify("--only", "ledger", "--no-record")
    assert (status, report["verdicts"]["ledger"]) == (1, "FAIL")
    assert "history" in report["details"]["ledger"][0]


OTHER_ARITHMETIC = """
import sys
from marin.process.arithmetic import apply
from marin.recipe.schema import Arithmetic, Execution
apply(Arithmetic(), Execution(devices=1))
from marin.training.runtime import canary
canary.answer = lambda: "sha256:" + "0" * 64
from marin.cli.main import main
sys.argv[0] = "marin"
main()
"""


def test_a_machine_that_computes_otherwise_accuses_nobody(project: Project) -> None:
    done = project.forked(
        OTHER_ARITHMETIC, "-q", "verify", "latest", "--json", "--no-record", "--only", "training,model", check=False
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdicts"]["training"], report["verdicts"]["model"]) == (
        3,
        "UNSUPPORTED",
        "UNSUPPORTED",
    )
    assert "does not compute the bits" in report["details"]["model"][0]


def test_a_setting_against_the_contract_accuses_nobody(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = project.environment() | {"XLA_FLAGS": "--xla_cpu_max_isa=AVX512"}
    monkeypatch.setattr(type(project), "environment", lambda _: setting)
    status, report = project.verify("--only", "training,model", "--no-record")
    assert (status, report["verdicts"]["training"], report["verdicts"]["model"]) == (3, "UNSUPPORTED", "UNSUPPORTED"), (
        report
    )
    assert project.marin("verify", "latest", "--devices", "3").returncode == 2


def test_wrong_usage_is_two(project: Project) -> None:
    for arguments in (
        ("verify", "nobody"),
        ("verify", "latest", "--only", "everything"),
        ("verify",),
        ("verify", "latest", "--only", "ledger", "--html", "no/such/folder/page.html"),
    ):
        done = project.marin(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr


@pytest.mark.long
def test_the_page_stands_alone(project: Project) -> None:
    project.verify("--only", "ledger,artifacts", "--no-record", "--html", "report.html")
    text = (project.folder / "report.html").read_text(encoding="utf-8")
    assert "PASS" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert text.count("<script") == 1, "what copies digests, and nothing else"
    assert "<p>By " not in text, "nothing was recorded: nobody says it"
    project.verify("--only", "ledger", "--html", "recorded.html")
    assert "<p>By " in (project.folder / "recorded.html").read_text(encoding="utf-8"), "as soon as it is known"
