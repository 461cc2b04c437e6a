"""Parts of a training replayed: a range, a sample, and from a stored state. Ray's workers are in test_sealed.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

FORGE_LAST = """
import shutil
from ledger import Draft, Log
from marin.record.root import open_root
root = open_root()
signer = root.signer()
drafts = [Draft(e.type, e.stream, dict(e.body), id=e.id, actor=e.actor, time=e.time) for _, e in root.reader().events()]
last = max(i for i, draft in enumerate(drafts) if draft.type == "train.segment/v1")
drafts[last].body["fingerprints"][1] = "sha256:" + "0" * 64
shutil.rmtree(".marin/log"); shutil.rmtree(".marin/projections", ignore_errors=True)
Log.create(root.storage, signer)
with Log.open(root.storage, signer) as log:
    log.append(drafts)
"""

COLLECT = """
import time
from ledger import Store, collect_garbage
from marin.history.referrers import retained_digests
from marin.record.root import open_root
root = open_root()
names = retained_digests(event for _, event in root.reader().events())
for days in (8, 16):
    done = collect_garbage(root.store(), names, now=time.time() + days * 86_400)
    print(sum(swept.act == "delete" for swept in done.swept))
"""


@pytest.mark.long(seconds=15)
def test_one_segment_of_two(project: Project) -> None:
    project.forked(FORGE_LAST)
    status, report = project.verify("--only", "training", "--steps", "0:2", "--no-record")
    sampled, found = project.verify("--only", "training", "--sample", "1", "--steps", "3:6", "--no-record")
    assert (status, report["verdicts"]["training"]) == (4, "PARTIAL"), report
    assert (report["training"]["mode"], report["training"]["segments_replayed"]) == ("range", 1)
    assert (sampled, found["first_divergence"]["step"]) == (1, 4), found


@pytest.mark.long(seconds=10)
def test_a_stored_state_is_proven_before_it_is_used(project: Project, tmp_path: Path) -> None:
    shown = json.loads(project.marin("show", "latest", "--json").stdout)
    tree = next(saved["artifact"] for saved in shown["checkpoints"] if saved["step"] == 3).removeprefix("sha256:")
    files = {
        "".join(path.relative_to(project.root / "store").parts): path
        for path in (project.root / "store").rglob("*")
        if path.is_file()
    }
    listed = next(path for name, path in files.items() if name.endswith(tree)).read_bytes()
    largest = max(
        (path for name, path in files.items() if name[-64:].encode() in listed and name[-64:] != tree),
        key=lambda path: path.stat().st_size,
    )
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.chmod(0o644)
    largest.write_bytes(bytes(data))
    lacking = project.copy(tmp_path / "lacking")
    (lacking.root / largest.relative_to(project.root)).unlink()
    asked = ["--only", "training", "--steps", "3:6", "--no-record"]
    status, report = project.verify(*asked)
    assert (status, report["verdicts"]["training"], report["first_divergence"]["step"]) == (1, "FAIL", 3), report
    assert "stored state" in report["first_divergence"]["explanation"]
    status, report = lacking.verify(*asked)
    assert (status, report["verdicts"]["training"], report["first_divergence"]) == (3, "UNAVAILABLE", None), report


@pytest.mark.long
def test_a_sample_says_what_it_is_worth(project: Project) -> None:
    status, report = project.verify("--only", "training", "--sample", "1", "--no-record")
    assert (status, report["verdicts"]["training"]) == (4, "PARTIAL"), report
    assert report["training"] | {"seconds": 0} == {
        "mode": "sampled",
        "segments_total": 2,
        "segments_replayed": 1,
        "workers": 1,
        "seconds": 0,
    }
    assert "1-(1-f)^1" in " ".join(report["details"]["training"])
    assert report["log_checkpoint"]["root"] in " ".join(report["details"]["training"])


@pytest.mark.long(seconds=40)
def test_what_a_policy_let_go_is_reached_from_the_state_before_it(project: Project) -> None:
    params = json.loads((project.folder / "params.yaml").read_text())
    params["trainer"]["steps_per_segment"] = 1
    (project.folder / "params.yaml").write_text(json.dumps(params))
    done = project.marin("stage", "train", "--keep-checkpoints", "every=3,last=1", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(project.marin("show", json.loads(done.stdout)["run"], "--json").stdout)
    trees = {saved["step"]: saved["artifact"] for saved in shown["checkpoints"]}
    set_aside, deleted = map(int, project.forked(COLLECT).stdout.split())
    assert set_aside == 0 and deleted > 0
    held = {json.loads(line)["digest"] for line in project.marin("store", "ls", "--json").stdout.splitlines()}
    assert [step for step in trees if trees[step] in held] == [3, 6]

    asked = ["--no-record", "--only", "artifacts,training"]
    status, report = project.verify(*asked, "--steps", "4:6")
    assert (status, report["verdicts"]["artifacts"], report["verdicts"]["training"]) == (4, "PASS", "PARTIAL"), report
    assert "4 training checkpoints were not asked for" in " ".join(report["details"]["artifacts"])
    assert report["training"]["segments_replayed"] == 3, "train step 3 too, from the state that is kept"
    assert "1 more segments executed on the way" in " ".join(report["details"]["training"])
    status, report = project.verify(*asked, "--sample", "2")
    assert (status, report["verdicts"]["training"]) == (4, "PARTIAL"), report
    status, report = project.verify(*asked, "--fresh")
    assert (status, report["verdicts"]["training"]) == (0, "PASS"), report


def test_wrong_ranges_are_wrong_usage(project: Project) -> None:
    for steps in ("5", "4:2", "a:b", "900:901"):
        done = project.marin("verify", "latest", "--only", "training", "--steps", steps)
        assert (done.returncode, done.stdout) == (2, "")
        said = [line for line in done.stderr.splitlines() if not line.startswith("loading marin verify")]
        assert len(said) == 1, "besides the progress on a busy machine"
