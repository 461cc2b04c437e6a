"""Cells of the census: two journals beside one another, and what the table says of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.census import page
from bench.census.cell import applied, error_of, key_of, record
from bench.census.changes import AS_IS, CHANGES
from bench.census.journal import HALF, STEPS, Journal, Setting
from bench.census.judge import CellResult, distance, judge
from bench.census.runs import Recorded, all_recorded, is_verified, verify
from bench.census.table import TRAININGS
from marin.provenance.processor import parse_cpuinfo
from marin.record.root import Root, open_root

TRAINING = next(each for each in TRAININGS if each.name == "sklearn-mlp")
WITHOUT = {each.name: each.without for each in TRAININGS}
REPEATED = next(each for each in CHANGES if each.name == "repeated")
type Alteration = Callable[[int, dict[str, Any]], None]


def trained(folder: Path, alter: Alteration = lambda step, seen: None, steps: range = range(STEPS)) -> Path:
    """The journal of a small training, by the class that trainings write theirs with. What a step has may be altered."""
    journal = Journal(Setting(folder=str(folder)))
    for step in steps:
        seen = {"loss": 1 / (step + 1), "batch": np.arange(4) + step, "evaluation": np.arange(3) / 7}
        seen |= {"weights": np.full((2, 3), 1 + step / 8), "bias": np.zeros(3, np.float32)}
        alter(step, seen)
        journal.step(step, seen["loss"], {name: seen[name] for name in ("weights", "bias")}, seen["batch"])
    journal.evaluation(seen["evaluation"])
    return folder / "journal"


@pytest.fixture
def root(project: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    monkeypatch.chdir(project)
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(
        "bench.census.cell.versions", lambda environment: {"numpy": np.__version__}
    )  # no environment of its own
    return open_root()


def recorded(root: Root, journal: Path, reference: Recorded | None = None, failure: str = "") -> Recorded:
    change = AS_IS if reference is None else REPEATED
    return record(TRAINING, change, key_of(TRAINING, change), journal, root, reference, failure)


def last_bit(step: int, seen: dict[str, Any]) -> None:
    """One bit of one tensor after the last step: the least that can differ."""
    if step == STEPS - 1:
        seen["weights"][1, 2] = np.nextafter(seen["weights"][1, 2], 2)


def sixth_loss(step: int, seen: dict[str, Any]) -> None:
    if step == 5:
        seen["loss"] = np.nextafter(seen["loss"], 2)


def other_rows(step: int, seen: dict[str, Any]) -> None:
    if step >= HALF:
        seen["batch"] = seen["batch"] + 1
        seen["weights"] = seen["weights"] * 2


def negative_zero(step: int, seen: dict[str, Any]) -> None:
    """Equal as numbers, and not in bits."""
    seen["bias"] = -seen["bias"]


def one_answer(step: int, seen: dict[str, Any]) -> None:
    seen["evaluation"][2] += 1e-9


def far_away(weights: float, size: float) -> str:
    return f"{weights / size:.0e}"


def test_a_cell_says_equal_only_where_every_bit_is(root: Root, tmp_path: Path) -> None:
    reference = recorded(root, trained(tmp_path / "as-it-is"))
    again = recorded(root, trained(tmp_path / "again"), reference)
    assert judge(root, reference, again) == CellResult("equal") and judge(root, reference, again).short() == "equal"
    last = 1 + (STEPS - 1) / 8
    bit = np.nextafter(last, 2) - last  # by hand: the norm of the difference by that of six equal weights
    said = {
        last_bit: f"7: {far_away(bit, last * 6**0.5)} → {far_away(bit, last * 6**0.5)}",
        sixth_loss: "5: the loss alone",
        other_rows: "4: 1e+00 → 1e+00 *",
        negative_zero: "0: 0e+00 → 0e+00",
        one_answer: f"evaluation {far_away(1e-9, (0**2 + 1 + 4) ** 0.5 / 7)}",
    }
    for alter, short in said.items():
        cell = recorded(root, trained(tmp_path / alter.__name__, alter), reference)
        found = judge(root, reference, cell)
        assert not found.equal and found.short() == short, alter.__name__
    assert len(all_recorded(root)) == 2, "the newest cell of a change counts"


def test_a_cell_that_stopped_or_is_short_is_no_equal_one(root: Root, tmp_path: Path) -> None:
    reference = recorded(root, trained(tmp_path / "as-it-is"))
    failed = recorded(root, trained(tmp_path / "failed"), reference, failure="ValueError: no")
    assert judge(root, reference, failed) == CellResult("fails", reason="ValueError: no")
    again = recorded(root, trained(tmp_path / "again"), reference)
    recorded(root, trained(tmp_path / "late"), reference, failure="OSError: the machine was busy")
    assert all_recorded(root)["sklearn-mlp", "repeated", again.key] == again, "what is complete is not undone"
    short = recorded(root, trained(tmp_path / "short", steps=range(STEPS - 1)), reference)
    assert judge(root, reference, short).short() == "7: other steps"

    def more(step: int, seen: dict[str, Any]) -> None:
        seen["weights"] = {"one": seen["weights"], "two": seen["bias"]}

    assert (
        judge(root, reference, recorded(root, trained(tmp_path / "more", more), reference)).short()
        == "0: other tensors"
    )


def test_a_resumed_journal_is_that_of_one_process(root: Root, tmp_path: Path) -> None:
    reference = recorded(root, trained(tmp_path / "as-it-is"))
    trained(tmp_path / "halves", steps=range(HALF))
    resumed = recorded(root, trained(tmp_path / "halves", steps=range(HALF, STEPS)), reference)
    assert judge(root, reference, resumed).equal


def test_each_cell_is_verified_and_a_changed_tensor_is_found(root: Root, tmp_path: Path) -> None:
    reference = recorded(root, trained(tmp_path / "as-it-is"))
    cell = recorded(root, trained(tmp_path / "bit", last_bit), reference)
    assert not is_verified(root, cell)
    assert verify(root, reference) == verify(root, cell) == ""
    assert is_verified(root, cell)
    (entry,) = [each for each in root.store().manifest(cell.tensors) if each.path == "007.npz"]
    stored = next(Path(root.location, "store").rglob(f"*{entry.digest.removeprefix('sha256:')[4:]}"))
    stored.chmod(0o644)
    whole = bytearray(stored.read_bytes())
    whole[len(whole) // 2] ^= 1
    stored.write_bytes(whole)
    assert "artifacts FAIL" in verify(root, cell) and verify(root, reference) == ""
    assert is_verified(root, reference) and not is_verified(root, cell)


def test_the_training_as_it_is_keeps_all_its_tensors_and_a_change_two_steps(root: Root, tmp_path: Path) -> None:
    reference = recorded(root, trained(tmp_path / "as-it-is"))
    cell = recorded(root, trained(tmp_path / "other", other_rows), reference)
    kept = {one.change: {each.path for each in root.store().manifest(one.tensors)} for one in (reference, cell)}
    assert kept["as-it-is"] == {f"{step:03}.npz" for step in range(STEPS)} | {"evaluation.npz"}
    assert kept["repeated"] == {f"{HALF:03}.npz", f"{STEPS - 1:03}.npz", "evaluation.npz"}
    assert judge(root, reference, cell).place() == "from `weights` (1 of 2)"


def test_a_training_may_have_more_devices_than_others() -> None:
    devices = next(each for each in CHANGES if each.name == "devices")
    numbers = {each.name: applied(each, devices).setting["devices"] for each in TRAININGS}
    assert numbers["jax-data-parallel"] == 8 and numbers["nanogpt"] == devices.setting["devices"] == 2
    assert all(applied(each, AS_IS) is AS_IS for each in TRAININGS)


def test_distances_are_of_the_whole_state() -> None:
    one = {"a": np.array([3.0, 4.0]), "b": np.zeros(2)}
    assert distance(one, {"a": np.array([3.0, 4.0]), "b": np.array([0.0, 5.0])}) == 1.0
    assert distance({"a": np.zeros(2)}, {"a": np.ones(2)}) != distance({"a": np.zeros(2)}, {"a": np.ones(2)}), (
        "no size: NaN"
    )
    assert np.isnan(distance(one, {"a": np.array([3.0, 4.0]), "b": np.zeros(3)})), "other shapes"
    assert np.isnan(distance({"a": np.zeros(2, np.uint8)}, {"a": np.ones(2, np.uint8)})), "words have no distance"


def test_the_table_of_the_page_is_kept_where_the_root_has_nothing() -> None:
    text = page.DOCUMENT.read_text(encoding="utf-8").partition(page.BEGIN)[2].partition(page.END)[0]
    rows = page.merged({}, page.written(text))
    assert page.table(rows) in text and page.counted(rows) in text and page.reasons() in text
    assert sum(len(row) for row in rows.values()) >= 140 and len(rows) >= 20
    assert all(len(row) >= 7 or WITHOUT[name] for name, row in rows.items())
    assert page.picture(rows) == page.PICTURE.read_text(encoding="utf-8")
    listed = page.DOCUMENT.read_text(encoding="utf-8").partition(page.PLACES)[2].partition(page.PLACED)[0].strip()
    assert page.places({}, page.located(listed)) == listed and listed.startswith("- `")
    new = page.merged({"lightgbm": {"repeated": "0: 1e-03 → 2e-03"}}, rows)
    assert new["lightgbm"] == {**rows["lightgbm"], "repeated": "0: 1e-03 → 2e-03"}
    assert {name: row for name, row in new.items() if name != "lightgbm"} == {
        name: row for name, row in rows.items() if name != "lightgbm"
    }
    here = {"lightgbm": {"repeated": CellResult("equal")}}
    assert page.held(here, {"lightgbm": {"repeated": "equal", "cut": "equal"}}).startswith(
        "The root of this table had 1 of the 2; "
    )
    assert (
        page.held(here, {"lightgbm": {"repeated": "equal"}})
        == "The root of this table had all 1, and each training as it is."
    )
    assert page.shade("equal") != page.shade("0: 1e-09 → 2e-09") != page.shade("0: 1e-09 → 2e-03 *")
    assert page.shade("1: the loss alone") == page.shade("0e+00") and page.shade("0: other") == page.shade(
        "4: other steps"
    )


def test_cells_of_a_root_are_compared_with_the_table(root: Root, tmp_path: Path) -> None:
    reference = recorded(root, trained(tmp_path / "as-it-is"))
    recorded(root, trained(tmp_path / "again"), reference)
    assert page.compared(root, all_recorded(root)) == ["1 cells of the root, 0 of them other than in the table"]
    recorded(root, trained(tmp_path / "bit", last_bit), reference)
    line, number = page.compared(root, all_recorded(root))
    assert line.startswith("sklearn-mlp") and "equal" in line and line.endswith("from `weights` (1 of 2)")
    assert number == "1 cells of the root, 1 of them other than in the table"


def test_a_cell_is_another_where_its_training_its_change_or_the_processor_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {key_of(each, change) for each in TRAININGS for change in (AS_IS, *CHANGES)}
    assert len(keys) == len(TRAININGS) * (1 + len(CHANGES))
    file = tmp_path / "tables" / "sklearn_mlp.py"
    file.parent.mkdir()
    before = key_of(TRAINING, AS_IS)
    file.write_text((Path(page.__file__).parent / "trainings" / TRAINING.file).read_text() + "\n")
    monkeypatch.setattr("bench.census.cell.TRAININGS", tmp_path)
    assert key_of(TRAINING, AS_IS) != before
    monkeypatch.undo()
    assert key_of(TRAINING, AS_IS) == before
    elsewhere = parse_cpuinfo("vendor_id : AuthenticAMD\ncpu family : 25\nmodel : 1\nflags : avx avx2\n", "x86_64")
    for other in (
        elsewhere,
        replace(elsewhere, features=("avx", "avx2", "avx512f")),
        replace(elsewhere, numbers=("", "", "2")),
    ):
        monkeypatch.setattr("bench.census.cell.processor", lambda other=other: other)
        keys.add(key_of(TRAINING, AS_IS))
    assert len(keys) == len(TRAININGS) * (1 + len(CHANGES)) + 3


def test_an_error_is_the_line_that_names_it() -> None:
    said = "Traceback (most recent call last):\n  File x\ntorch.Lost.Error: it\nValueError: the last\n\nsee the log\n"
    assert error_of(said) == "ValueError: the last" and error_of("a\nb\n") == "b" and error_of("") == ""


def test_a_setting_is_what_the_variable_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.census.journal import setting

    monkeypatch.setitem(os.environ, "CENSUS", json.dumps({"cut": 2, "resume": True}))
    assert setting() == Setting(cut=2, resume=True)
