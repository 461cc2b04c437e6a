"""`marin run FILE`: what it prints, what it exits with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.marin.cli.conftest import Marin

FILE = """
from marin.graph import Resources, Step

HERE = Resources(in_process=True)


def double(context):
    return 2 * context.config["n"]


def bad(context):
    raise ValueError("no such luck")


one = Step("double/one", double, {"n": 1}, {}, HERE)
steps = [Step("double/two", double, {"n": 2}, {"one": one}, HERE)]
"""


@pytest.fixture
def file(root: Path) -> Path:
    path = Path("exp_cli_test.py")
    path.write_text(FILE)
    return path


def test_runs_and_then_has_nothing_to_do(marin: Marin, file: Path) -> None:
    first = marin("run", file)
    assert first.status == 0
    assert "double/two" in first.out
    assert "2 executed; graph " in first.err
    second = marin("run", file, "--json")
    assert second.status == 0
    assert second.json["counts"] == {"cached": 2}
    assert second.json["graph"] is None
    assert [item["address"] for item in second.json["steps"]] == ["double/one", "double/two"]
    assert marin("log", "--json").lines[-1]["type"] == "graph.completed/v1"


def test_a_dry_run_changes_nothing(marin: Marin, file: Path) -> None:
    before = marin("log", "--json").data
    found = marin("run", file, "--dry-run", "--json")
    assert found.status == 0
    assert [(item["address"], item["action"], item["why"]) for item in found.json["steps"]] == [
        ("double/one", "run", ["never made here"]),
        ("double/two", "run", ["never made here", "after double/one"]),
    ]
    assert found.json["total"]["step"] == "total"
    assert marin("log", "--json").data == before
    assert marin("run", file, "--dry-run").out.splitlines()[-1].startswith("total")


def test_only_some(marin: Marin, file: Path) -> None:
    assert marin("run", file, "--only", "one$", "--json").json["counts"] == {"executed": 1}
    assert marin("run", file, "--only", "nothing").status == 2


@pytest.mark.parametrize("text", ["steps = 1", "1 / 0", "x = 1"])
def test_wrong_files_are_wrong_usage(marin: Marin, root: Path, text: str) -> None:
    Path("exp_cli_wrong.py").write_text(text)
    assert marin("run", "exp_cli_wrong.py").status == 2
    assert marin("run", "absent.py").status == 2


def test_a_failure_is_one_line_and_exit_1(marin: Marin, file: Path) -> None:
    Path("exp_cli_bad.py").write_text(FILE + "steps.append(Step('bad', bad, {}, {}, HERE))\n")
    found = marin("run", "exp_cli_bad.py")
    assert found.status == 1
    assert "bad failed" in found.err
    assert "no such luck" in found.err
    assert "Traceback" not in found.err
    assert "double/two" in found.out


def test_no_root_is_said(marin: Marin, tmp_path: Path) -> None:
    Path("exp_cli_test2.py").write_text(FILE)
    found = marin("run", "exp_cli_test2.py")
    assert found.status == 3
    assert "marin init" in found.err


def test_a_step_that_is_not_deterministic_is_shown_everywhere(marin: Marin, root: Path) -> None:
    Path("exp_cli_clock.py").write_text("""
import time
from marin.graph import Resources, Step

def clock(context):
    return str(time.time_ns())

steps = [Step("clock/now", clock, {}, {}, Resources(in_process=True))]
""")
    first = marin("run", "exp_cli_clock.py", "--check")
    assert first.status == 1
    assert "other bits the second time" in first.err
    assert "clock/now is not deterministic" in marin("run", "exp_cli_clock.py").err
    assert "not deterministic" in marin("run", "exp_cli_clock.py", "--dry-run").out
    assert "not deterministic" in marin("show", "clock/now").out
    assert marin("show", "clock/now", "--json").json[0]["deterministic"] is False
    assert "not deterministic" in marin("ls", "artifacts").out
