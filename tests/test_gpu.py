"""`make gpu` without a GPU: the probes find what is wrong, a setting is chosen by what they say, and what travels is
locked. With `-m determinism` the whole command, asked of the processor."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from compiled_once import compiled_once
from jax import lax

import bench.gpu.__main__ as command
from bench.gpu import pack, probes, stand_ins
from marin.plugins.exact.guarded import Guarded

__all__ = ["compiled_once"]

PAIRS = 4096


def answered(questions: Iterator[probes.Question]) -> dict[str, probes.Probe]:
    return {probe.name: probe for probe in probes.asked(questions)}


def test_what_exact_rests_on_holds_here() -> None:
    found = answered(probes.roundings(PAIRS))
    assert [one.name for one in found.values() if one.needed and not one.holds] == []
    assert {one.compared for one in found.values()} == {PAIRS}


@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("reciprocal", lambda to, a: to.rule(1 / a * jnp.float32(1.0000001)), "1 / b"),
        ("sqrt", lambda to, a: lax.sqrt(a) * jnp.float32(1.0000001), "square root"),
        ("rule", lambda to, a: a * jnp.float32(1.0000001), "a + b"),
    ],
)
def test_a_wrong_rounding_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Any], said: str
) -> None:
    monkeypatch.setattr(Guarded, name, wrong)
    found = answered(probes.roundings(PAIRS))[f"{said}, {PAIRS} pairs"]
    assert found.needed and not found.holds and found.differing > PAIRS // 8


@pytest.mark.long(seconds=10)
def test_sums_of_products_are_exact_and_a_rounded_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "INT8_LONGEST", 8192)
    assert [one.name for one in answered(probes.accumulations()).values() if not one.holds] == []
    plain = lax.dot_general

    def rounded(x: Any, y: Any, *rest: Any, **named: Any) -> Any:
        found = plain(x, y, *rest, **named)
        return found.astype(jnp.bfloat16).astype(found.dtype) if x.dtype == jnp.bfloat16 else found

    monkeypatch.setattr(lax, "dot_general", rounded)
    wrong = [one.name for one in answered(probes.accumulations()).values() if not one.holds]
    assert wrong and all(name.startswith("bfloat16 sums of") for name in wrong)


def test_what_does_not_compile_is_an_answer() -> None:
    def fails() -> tuple[int, int]:
        raise RuntimeError("no such kernel")

    (found,) = probes.asked(iter([("a kernel", True, fails)]))
    assert not found.holds and found.error == "RuntimeError: no such kernel"


@pytest.mark.parametrize("good", [0, 2, None])
def test_the_first_setting_that_holds_is_trained_under(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, good: int | None
) -> None:
    settings = command.SETTINGS["cuda"]
    seen: list[str] = []

    def execute(arguments: list[str], variables: Any, folder: Path) -> command.Done:
        flags = variables.get("XLA_FLAGS", "")
        if "known.check" not in arguments[-1]:
            return command.Done(0, "some\n", "", 1.0)
        seen.append(flags)
        return command.Done(int(good is None or flags != " ".join(settings[good])), "", "", 1.0)

    monkeypatch.setattr(command, "execute", execute)
    monkeypatch.setattr(command, "trained", lambda platform, flags, *rest: rest[-1]({"flags": flags}))
    options = argparse.Namespace(platform="cuda", pairs=PAIRS, steps=4, models="", parts="run")
    found = command.measure(options, tmp_path)
    tried = len(settings) if good is None else good + 1
    assert seen == [" ".join(flags) for flags in settings[:tried]]
    assert found["run"] == {"flags": settings[good or 0]}
    assert not command.held(found), "trained and not verified"


def test_every_setting_is_probed_until_one_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = command.SETTINGS["cuda"]

    def execute(arguments: list[str], variables: Any, folder: Path) -> command.Done:
        right = variables.get("XLA_FLAGS", "") == " ".join(settings[1])
        said = [{"name": "1 / b", "needed": True, "holds": right}, {"name": "rsqrt", "needed": False, "holds": False}]
        return command.Done(0, json.dumps({"platform": "gpu", "device": "some", "probes": said}), "", 1.0)

    monkeypatch.setattr(command, "execute", execute)
    to = command.Measured(tmp_path / "gpu.json", {})
    command.probed(argparse.Namespace(platform="cuda", pairs=PAIRS), to, tmp_path)
    assert [one["holds"] for one in to.found["settings"]] == [False, True]
    assert json.loads((tmp_path / "gpu.json").read_text()) == to.found


def test_another_device_than_was_asked_is_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = {"platform": "cpu", "device": "cpu", "probes": [{"name": "1 / b", "needed": True, "holds": True}]}
    monkeypatch.setattr(command, "execute", lambda *given: command.Done(0, json.dumps(said), "", 1.0))
    assert not command.asked("cuda", (), PAIRS, tmp_path)["holds"]


def test_what_travels_is_what_the_lock_says() -> None:
    lock = Path(pack.PROJECT, "requirements.lock").read_text()
    chosen = pack.locked({"marin-levanter", "jaxtyping"}, lock)
    assert [line.partition("==")[0] for line in chosen.splitlines() if not line.startswith(" ")] == [
        "jaxtyping",
        "marin-levanter",
    ]
    assert chosen.count("--hash=sha256:") >= 2


@pytest.mark.long(seconds=15)
def test_a_training_imports_what_travels_and_no_more() -> None:
    travels = pack.needed(frozenset({"grpcio"}))
    assert {"marin-levanter", "equinox", "cryptography", "hydra-core"} <= travels
    assert not travels & {"grpcio", "jax", "pandas", "polars", "vortex-data", "duckdb", "datasets", "wandb"}


def test_what_can_not_be_imported_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "IMPORTED", "import nothing_of_this_name")
    with pytest.raises(SystemExit, match="not all here: ModuleNotFoundError: No module named 'nothing_of_this_name'"):
        pack.needed()


def test_a_stand_in_is_for_what_is_missing_alone() -> None:
    code = """
import sys
before = set(sys.modules)
sys.path = [path for path in sys.path if "site-packages" not in path]
from bench.gpu import stand_ins
stand_ins.install()
import duckdb, json
from polars import DataFrame
class Own(duckdb.ExtensionType): pass
print(duckdb.field("a", duckdb.string()) is not None, isinstance(Own(), Own), json.loads("1"))
try:
    import nothing_of_this_name
except ImportError:
    print("missing")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=pack.PROJECT)
    assert done.stdout.split() == ["True", "True", "1", "missing"], done.stderr
    assert stand_ins.Finder().find_spec("numpy") is None


@pytest.mark.determinism
def test_the_whole_command_asked_of_the_processor(tmp_path: Path) -> None:
    arguments = [
        "--platform",
        "cpu",
        "--pairs",
        "65536",
        "--steps",
        "4",
        "--models",
        "nano",
        "--out",
        str(tmp_path / "out"),
    ]
    arguments += ["--parts", "probes,run,repeats"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu", *arguments], cwd=pack.PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "out" / "gpu.json").read_text())
    (setting,) = found["settings"]
    assert setting["holds"] and setting["platform"] == "cpu"
    assert sum("known answer of step" in probe["name"] for probe in setting["probes"]) == len(probes.WAYS)
    assert found["repeats"]["nano"]["equal"]
    assert found["run"]["verified"]["report"]["verdicts"]["training"] == "PASS"
    assert (tmp_path / "out" / "exact" / "run.tar.gz").is_file()


def test_what_an_earlier_call_wrote_stays(tmp_path: Path) -> None:
    (tmp_path / "gpu.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu", "--out", str(tmp_path)],
        cwd=pack.PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and f"--out {tmp_path} is there already; name a new folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--parts", "probe,run"), "--parts: expected some of probes, run, default, .*; found probe"),
        (("--parts", ""), "--parts: expected some of probes, .*; found none"),
        (("--models", "nano,26m"), "--models: expected some of nano, 25m, llama-135m; found 26m"),
        (("--models", "", "--out", f"{__file__}/out"), "--out .*/out can not be made .Not a directory.; name another"),
    ],
)
def test_what_nobody_knows_is_asked_of_no_device(
    asked: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """A part with another name would be left out, and what is left out holds."""
    monkeypatch.setattr(sys, "argv", ["bench.gpu", "--platform", "cpu", "--out", str(tmp_path / "out"), *asked])
    monkeypatch.setattr(command, "measure", lambda options, folder: {})
    with pytest.raises(SystemExit, match="2"):
        command.main()
    assert re.search(said, capsys.readouterr().err.replace("\n", " "))


def test_nothing_of_the_user_reaches_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {"NPROC": "1", "TF_XLA_FLAGS": "x", "EAGER_CONSTANT_FOLDING": "1", "LEVANTER_CE_XLA_FAST_BWD": "1"}
    for name, value in (theirs | {"JAX_SCAN3": "1", "HERE": "stays"}).items():
        monkeypatch.setenv(name, value)
    found = command.environment("cuda", ())
    assert not found.keys() & theirs.keys() and "JAX_SCAN3" not in found and found["HERE"] == "stays"
