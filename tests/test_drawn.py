"""A change is tested with a tenth of dear tables, and a minute of the long tests: others at another change."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from drawn import BUDGET, SEED, SINCE, places, subjects

SERVICES = Path(__file__).with_name("services")
CONFTEST = """
import drawn
from drawn import add_option as pytest_addoption, pytest_configure, pytest_report_header, tenth

def pytest_collection_modifyitems(config, items):
    drawn.draw(config, items)
"""
TESTS = """
import pytest

@pytest.mark.table
@pytest.mark.parametrize("case", range(20))
def test_table(case):
    pass

@pytest.mark.table(together="pairs")
@pytest.mark.parametrize("case", range(20))
def test_one(case):
    pass

@pytest.mark.table(together="pairs")
@pytest.mark.parametrize("case", range(20))
def test_other(case):
    pass

@pytest.mark.long
@pytest.mark.parametrize("case", range(29))
def test_long(case):
    pass

@pytest.mark.long(together="dear")
def test_makes():
    pass

@pytest.mark.long(together="dear")
def test_uses():
    pass

def test_what_it_goes_through(tenth):
    print("through", tenth(range(40)))

def test_short():
    pass
"""
DEAR = """
import pytest

@pytest.mark.long(seconds=%d)
@pytest.mark.parametrize("case", range(8))
def test_dear(case):
    pass
"""


def executed(folder: Path, seed: str, *arguments: str, **variables: str) -> tuple[dict[str, list[int]], str]:
    """The cases of each test that were executed, and all that pytest said."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:schemathesis",
            "-rP",
            "-v",
            "--rootdir",
            str(folder),
            "-c",
            str(folder / "pytest.ini"),
            *arguments,
        ],
        cwd=folder,
        env={"PYTHONPATH": str(SERVICES), "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", SEED: seed, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    cases: dict[str, list[int]] = {}
    for name, case in re.findall(r"::(\w+)(?:\[(\d+)\])? PASSED", done.stdout):
        cases.setdefault(name, []).extend([int(case)] if case else [])
    return cases, done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn")
    markers = "markers =\n    table(together): of a table\n    long(together): long\n"
    (folder / "pytest.ini").write_text(f"[pytest]\ntestpaths = tests\naddopts = --strict-markers\n{markers}")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_all.py").write_text(TESTS)
    return folder


def test_a_part_is_drawn_by_the_seed_and_nothing_else_is_left_out(folder: Path) -> None:
    cases, told = executed(folder, "one")
    assert "MARIN_DRAWN=one" in told and "test_short" in cases
    assert [len(cases[name]) for name in ("test_table", "test_one", "test_other")] == [2, 2, 2]
    assert cases["test_one"] == cases["test_other"]
    assert len(cases["test_long"]) + ("test_uses" in cases) == BUDGET / 5
    assert ("test_makes" in cases) == ("test_uses" in cases)
    (through,) = re.findall(r"through (\[.*\])", told)
    assert through.count(",") == 3
    assert executed(folder, "one")[0] == cases
    assert executed(folder, "two")[0] != cases


@pytest.mark.parametrize(("seconds", "count"), [(BUDGET / 4, 4), (BUDGET * 2 / 3, 1), (BUDGET * 2, 1)])
def test_there_is_time_for_so_many_and_for_one_at_least(
    folder: Path, tmp_path: Path, seconds: float, count: int
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tests" / "test_all.py").write_text(DEAR % seconds)
    drawn = [executed(tmp_path, seed)[0]["test_dear"] for seed in ("one", "two", "three")]
    assert [len(cases) for cases in drawn] == [count] * 3 and drawn != [drawn[0]] * 3


def test_what_still_fits_is_taken_and_what_does_not_has_its_turn_as_the_first(folder: Path, tmp_path: Path) -> None:
    """A dear test among five-second ones: drawn first it is alone, else there is no room for it."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tests" / "test_dear.py").write_text(DEAR.replace("range(8)", "range(30)") % (BUDGET * 2))
    drawn = [executed(tmp_path, seed)[0] for seed in ("one", "two", "three", "four")]
    counts = {(len(cases.get("test_dear", [])), len(cases.get("test_long", []))) for cases in drawn}
    assert counts <= {(1, 0), (0, 12), (0, 11)} and len(counts) > 1, counts


def test_tests_that_go_together_say_their_seconds_once() -> None:
    groups: dict[str, list[bool]] = {}
    for path in Path(__file__).parent.rglob("*.py"):
        if path not in (Path(__file__), SERVICES / "drawn.py"):
            for name, rest in re.findall(r'mark\.long\(together="([^"]*)"([^)]*)\)', path.read_text(encoding="utf-8")):
                groups.setdefault(name, []).append("seconds=" in rest)
    assert len(groups) > 5 and {name: said for name, said in groups.items() if sum(said) != 1} == {}


def test_the_whole_and_what_is_named(folder: Path) -> None:
    whole = {"test_table": 20, "test_one": 20, "test_other": 20, "test_long": 29}
    cases, told = executed(folder, "one", "--whole")
    assert (
        {name: len(found) for name, found in cases.items() if found} == whole
        and "test_uses" in cases
        and "all of them" in told
    )
    named, _ = executed(folder, "one", "tests/test_all.py")
    assert len(named["test_long"]) == 29 and len(named["test_table"]) == 2


def test_what_is_asked_for_by_itself_is_not_drawn(folder: Path) -> None:
    """Cases by their ids; long tests by a word; what failed before, though it would not be drawn."""
    cases = [f"tests/test_all.py::test_table[{case}]" for case in range(5)]
    assert executed(folder, "one", *cases)[0] == {"test_table": [0, 1, 2, 3, 4]}
    assert len(executed(folder, "one", "-k", "test_long")[0]["test_long"]) == 29
    cache = folder / ".pytest_cache" / "v" / "cache" / "lastfailed"
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps(dict.fromkeys([*cases, "tests/test_all.py::test_long[8]"], True)))
    assert executed(folder, "two", "--lf")[0] == {"test_table": [0, 1, 2, 3, 4], "test_long": [8]}


def test_long_tests_of_what_was_changed_come_first(folder: Path, tmp_path: Path) -> None:
    """By the last commit, the tree since then, or all commits since one that is named; then, as there is time, others."""
    project = tmp_path / "project"
    shutil.copytree(folder, project, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    for name in ("product/part/code.py", "elsewhere/product.py", "tests/test_product.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    (project / "tests" / "product").mkdir()
    (project / "tests" / "product" / "test_dear.py").write_text(DEAR % (BUDGET / 6))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def git(*arguments: str) -> str:
        who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(project), *who, *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment | {"GIT_CONFIG_GLOBAL": os.devnull}
        ).stdout.strip()

    def drawn(said: str, *arguments: str, **variables: str) -> tuple[int, int]:
        """Of 8 about the product, which take 6 times what there is time for together; of 29 others."""
        cases, told = executed(project, "one", *arguments, PATH=os.environ["PATH"], **variables)
        assert said in told
        return len(cases.get("test_dear", [])), len(cases.get("test_long", []))

    (project / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "all is new, and has nothing before it")
    part, first = drawn("what changed since HEAD^ is not known"), git("rev-parse", "HEAD")
    with pytest.raises(subprocess.CalledProcessError) as unknown:
        drawn("", "--touched")
    assert "name a commit by MARIN_SINCE=COMMIT" in unknown.value.stderr + unknown.value.stdout
    assert part[0] < 6
    git("commit", "--quiet", "--allow-empty", "-m", "nothing changed")
    for name in ("elsewhere/product.py", "tests/test_product.py"):
        (project / name).write_text("# more\n")
    assert drawn("since HEAD^ (2 files)") == part
    (project / "product/part/code.py").rename(project / "elsewhere" / "code.py")
    assert drawn("since HEAD^ (4 files)") == (6, 0)
    git("add", ".")
    git("commit", "--quiet", "-m", "the product is elsewhere")
    assert drawn("since HEAD^ (4 files)", GIT_DIR=str(tmp_path)) == (6, 0)
    assert drawn("all of what changed since HEAD^ (4 files)", "--touched") == (8, 0)
    git("commit", "--quiet", "--allow-empty", "-m", "nothing changed")
    assert drawn("since HEAD^ (0 files)") == part
    assert drawn(f"since {first} (4 files)", **{SINCE: first}) == (6, 0)
    (project / "tests" / "product" / "test_dear.py").write_text(DEAR % (BUDGET / 10))
    assert drawn("since HEAD^ (1 files)") == (8, 2), "what is left of the time is for others"


def test_a_test_file_is_about_what_its_folder_is_named_after_or_says() -> None:
    tests = Path(__file__).parent
    stands_on = {"requirements.lock", "tests/conftest.py", "tests/services/"}
    assert {*subjects("tests/test_surfaces.py")} - stands_on == {"tests/test_surfaces.py"}
    assert {*subjects("tests/test_gpu.py")} - stands_on == {"tests/test_gpu.py", "bench/gpu/", "marin/plugins/exact/"}
    assert {*subjects("tests/marin/graph/test_own_steps.py")} - stands_on == {
        "tests/marin/graph/test_own_steps.py",
        "marin/graph/",
        "tests/marin/graph/conftest.py",
        "tests/marin/conftest.py",
    }
    assert "marin/verify/" in subjects("tests/e2e/verifying/test_verify.py")
    assert "marin/plugins/exact/" in subjects("tests/plugins/exact/test_step.py")
    long = [path for path in tests.rglob("test_*.py") if "mark.long" in path.read_text(encoding="utf-8")]
    about = {name for path in long for name in subjects(path.relative_to(tests.parent).as_posix())}
    assert {"marin/graph/", "marin/runners/", "ledger/log/", "requirements.lock"} < about
    assert [name for name in sorted(about) if name.endswith("/") and not (tests.parent / name).is_dir()] == []


def test_other_seeds_draw_all(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    for seed in range(60):
        monkeypatch.setenv(SEED, f"{seed:012x}")
        found = places(50, "a table")
        assert len(found) == 5 and found == sorted(set(found))
        seen.update(found)
    assert seen == set(range(50))
