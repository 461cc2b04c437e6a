"""A run under profile exact, trained by XLA and published, before the judge in node: it executes train steps by the published
programs and gets every recorded bit; what was forged where only execution sees it, is seen."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sessions import new_cache

from ledger import Sliced, describe_state, put_slices
from marin.history.runs import run_ids
from marin.record import events as kinds
from marin.record.fingerprint import step_fingerprint
from marin.training.step import fingerprint
from tests.adversary.forgeries.workshop import Base, Shop
from tests.e2e.conftest import PARAMS, PIPELINE, Project
from tests.plugins.sharing.judge.node import checked, needs_node

pytestmark = [needs_node, pytest.mark.long(seconds=90)]

EXACT = {
    "profile": "exact",
    "logical_shards": 1,
    "microbatch_size": 8,
    "reduction": "integer",
    "isa": "any",
    "xla_flags": [],
}


@pytest.fixture(scope="module")
def exact(warm: Callable[[], object], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One run of six train steps in two segments."""
    base = tmp_path_factory.mktemp("exact")
    project = Project(base / "project", base / "home", warm)  # type: ignore[arg-type]
    project.folder.mkdir()
    new_cache(project.home / "cache")
    (project.folder / "params.yaml").write_text(json.dumps(PARAMS | {"arithmetic": EXACT}), encoding="utf-8")
    project.python(PIPELINE, "1")
    return project


@pytest.fixture(scope="module")
def site(exact: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "site"
    done = exact.marin("publish", "latest", "--to", str(folder), apart=True)
    assert done.returncode == 0, done.stderr
    return folder


def key_of(folder: Path) -> str:
    return (folder / "vkey").read_text().strip()


def test_train_steps_give_every_recorded_bit(site: Path) -> None:
    found = checked(site, key_of(site), execute="all")
    assert (found.status, found.outcomes) == (0, ["PASS"] * 3), found.said
    execution = found.report["execution"]
    assert execution["outcome"] == "PARTIAL"
    assert "train steps 3 to 5 executed again" in execution["lines"][0]
    claims = [
        one for one in found.report["claims"] if one["by"] == "execution" and one["claim"].startswith("train steps")
    ]
    assert [one["status"] for one in claims] == ["open", "established"]
    assert "train step 4" not in checked(site, key_of(site), execute="3").report["execution"]["lines"][0]
    assert checked(site, key_of(site), execute="0").report["execution"]["outcome"] == "not judged", (
        "no state is stored there"
    )


def test_another_program_or_constant_is_refused(site: Path, tmp_path: Path) -> None:
    for pattern in ("programs/*.json", "programs/constants/*"):
        copy = Path(shutil.copytree(site, tmp_path / pattern.replace("/", "-").replace("*", "")))
        for path in copy.glob(pattern):
            if len(path.stem) == 64:
                path.write_bytes(
                    path.read_bytes().replace(b"add", b"sub") if path.suffix else b"\x01" + path.read_bytes()[1:]
                )
        found = checked(copy, key_of(site))
        assert (found.status, found.report["execution"]["outcome"]) == (1, "FAIL"), pattern


def test_other_sequences_are_refused(site: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(site, tmp_path / "copy"))
    (path,) = (path for path in (copy / "programs").glob("*.json") if len(path.stem) < 64)
    hints = json.loads(path.read_bytes())
    hints["sequences"]["3"][0] ^= 1
    path.write_text(json.dumps(hints, separators=(",", ":"), sort_keys=True))
    found = checked(copy, key_of(site), execute="3")
    assert found.status == 1 and "its tokens are not those of these sequences" in found.report["execution"]["lines"][0]


def forged(exact: Project, site: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Shop:
    """A state in the middle changed with the key: segments, checkpoint, trace and fingerprints all agree with it."""
    (key,) = (exact.home / "config" / "marin").rglob("*.key")
    base = Base(folder, exact.root, key, "")
    (run,) = run_ids(base.root.history())
    folder.mkdir()
    shop = Shop(Base(folder, exact.root, key, run), run, folder)
    (saved,) = (one.body for one in shop.all(kinds.CHECKPOINT_SAVED) if one.body["step"] == 3)
    before, after = (one.body for one in shop.all(kinds.TRAIN_SEGMENT))
    found = Sliced.of_store(shop.store, saved["artifact"])
    state = {one.path: found.whole(one.path).copy() for one in found.state.tensors}
    change(state)
    made, described = put_slices(shop.store, state, found.form.slices, found.form.leads), describe_state(state)
    stored = shop.store.put_bytes(described.encode()).digest
    saved |= {"artifact": made.digest, "manifest": stored, "size": made.size, "state": described.digest}
    hints = json.loads((site / f"programs/{run}.json").read_bytes())
    order = ["step", "cursor", "key", *hints["parameters"], *hints["moments"]]
    row = np.stack([fingerprint.of(state[path]) for path in order]).astype("<u4").tobytes()
    trace = shop.store.read(before["trace"])[: -len(row)] + row
    norms = {
        step: float.fromhex(value)
        for one in shop.all(kinds.METRICS_RECORDED)
        for series in one.body["series"]
        if series["key"] == kinds.GRAD_NORM
        for step, value in zip(series["steps"], series["values"], strict=True)
    }
    before["fingerprints"][-1] = step_fingerprint(float.fromhex(before["losses"][-1]), norms[2], row)
    before |= {"end_state": described.digest, "trace": shop.store.put_bytes(trace).digest}
    after["start_state"] = described.digest
    for one in shop.all(kinds.TRAIN_STARTED):
        if one.body["first_step"] == 3:
            one.body |= {"state": described.digest, "manifest": stored}
    shop.sign()
    shutil.copytree(site / "programs", shop.path / "programs")
    return shop


def a_weight(state: dict[str, Any]) -> None:
    weights = state["model/lm_head/weight"].reshape(-1)
    weights[5] = np.nextafter(weights[5], np.float32(9))


def a_moment(state: dict[str, Any]) -> None:
    (path, *_) = (path for path in state if path.endswith("/mu/lm_head/weight"))
    state[path].reshape(-1)[5] *= np.float32(2)


@pytest.mark.parametrize("change", [a_weight, a_moment])
def test_a_state_that_was_forged_with_all_that_follows_from_it(
    exact: Project, site: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    shop = forged(exact, site, tmp_path / "shop", change)
    quiet = checked(shop.path, key_of(site), execute="none")
    assert quiet.outcomes == ["PASS"] * 3, quiet.said
    found = checked(shop.path, key_of(site), execute="3")
    assert (found.status, found.report["execution"]["outcome"]) == (1, "FAIL")
    assert "train step 3, executed again, has another" in found.report["execution"]["lines"][0]
