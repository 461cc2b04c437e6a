"""`marin init` and `marin doctor`: a root, a key, and what stands in the way."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marin.process import arithmetic
from marin.provenance import environment
from marin.provenance.processor import Processor, parse_cpuinfo
from marin.verify import diagnosis
from marin.verify.diagnosis import Health, compare_versions
from marin.work import answers

Marin = Any
WHOLE_STEPS = diagnosis.whole_steps


def test_init_makes_a_root_and_a_key_for_its_owner_only(marin: Marin, own_keys: Path) -> None:
    made = marin("init", "--json").json
    key = Path(made["key"])
    assert key.is_relative_to(own_keys)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert made["vkey"] == Path(".marin/vkey").read_text().strip()
    assert made["origin"].startswith("marin.local/")
    assert not any("PRIVATE" in file.read_text("latin-1") for file in Path(".marin").rglob("*") if file.is_file())


def test_init_again_changes_nothing(marin: Marin) -> None:
    first = marin("init")
    before = {file: file.read_bytes() for file in Path(".marin").rglob("*") if file.is_file()}
    again = marin("init")
    assert (first.status, again.status) == (0, 0)
    assert first.out == again.out
    assert marin("init", "--quiet").data == marin("init", "-q").data == b""
    assert {file: file.read_bytes() for file in Path(".marin").rglob("*") if file.is_file()} == before


def test_init_where_a_file_is_in_the_way(marin: Marin, own_keys: Path) -> None:
    Path(".marin").write_text("a file")
    refused = marin("init")
    assert refused.status == 2
    assert refused.err.count("\n") == 1 and "no folder" in refused.err
    assert not list(own_keys.rglob("*.key")), "no key of a log that never was"
    assert Path(".marin").read_text() == "a file"


@pytest.mark.parametrize("origin", ["", "two words", "a+b"])
def test_an_origin_that_cannot_be_one_leaves_nothing(marin: Marin, own_keys: Path, origin: str) -> None:
    assert marin("init", "--origin", origin or " ").status != 0
    assert not Path(".marin/vkey").exists()
    assert not list(own_keys.rglob("*.key"))


def test_a_missing_key_stops_writing_and_not_reading(marin: Marin, run: str, own_keys: Path) -> None:
    (key,) = own_keys.rglob("*.key")
    key.unlink()
    refused = marin("ledger", "append", "--type", "a/v1", "--stream", "s", "--body", "-", stdin=b"{}")
    assert refused.status == 3
    assert str(key) in refused.err and "init` begins another log" in refused.err
    assert marin("ls", "runs", "--json").status == 0
    assert marin("ledger", "fsck").status == 0


def test_a_key_of_another_log_is_refused(
    marin: Marin, root: Path, own_keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = marin("init", "--root", tmp_path / "other", "--json").json["key"]
    monkeypatch.setenv("MARIN_KEY", other)
    refused = marin("ledger", "append", "--type", "a/v1", "--stream", "s", "--body", "-", stdin=b"{}")
    assert refused.status == 2
    assert other in refused.err
    assert marin("ledger", "checkpoint", "--json").json["size"] == 0


def test_a_key_that_others_can_read_is_refused(marin: Marin, root: Path, own_keys: Path) -> None:
    (key,) = own_keys.rglob("*.key")
    key.chmod(0o644)
    refused = marin("ledger", "append", "--type", "a/v1", "--stream", "s", "--body", "-", stdin=b"{}")
    assert refused.status == 2
    assert "chmod 600" in refused.err


def test_whole_train_steps_are_executed_again_by_other_code_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, executed = [KNOWN], []

    def run(*_: object, **__: object) -> SimpleNamespace:
        executed.append(code[0])
        return SimpleNamespace(stdout=json.dumps({"found": code[0], "expected": KNOWN}))

    monkeypatch.setattr(answers, "own_folder", lambda name: tmp_path)
    monkeypatch.setattr(answers, "files_digest", lambda folder, paths: code[0])
    monkeypatch.setattr(diagnosis, "subprocess", SimpleNamespace(run=run))
    assert [WHOLE_STEPS()["found"] for _ in range(2)] == [KNOWN, KNOWN]
    code[0] = OTHER
    assert [WHOLE_STEPS()["found"] for _ in range(2)] == [OTHER, OTHER]
    assert executed == [KNOWN, OTHER, OTHER], "a wrong answer is asked for again"
    (kept,) = tmp_path.iterdir()
    assert kept.read_text() == KNOWN


KNOWN, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.fixture(autouse=True)
def answered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What exact arithmetic gave otherwise: nothing, without executing it (tests/plugins/exact does)."""
    differing: list[str] = []
    monkeypatch.setattr(diagnosis, "inexact_programs", lambda: tuple(differing))
    monkeypatch.setattr(
        diagnosis, "whole_steps", lambda: {"found": OTHER if "steps" in differing else KNOWN, "expected": KNOWN}
    )
    return differing


def test_doctor_says_whether_whole_train_steps_give_the_known_answer(marin: Marin, answered: list[str]) -> None:
    before = marin("doctor", "--json").json
    if not before["profiles"]["portable-cpu"]["supported"]:
        pytest.skip("nothing is asked of a machine that does not keep the contract")
    answered.append("steps")
    after = marin("doctor", "--json")
    (one, other) = (
        next(check for check in told["checks"] if check["name"] == "train steps") for told in (before, after.json)
    )
    assert (one["health"], other["health"], after.status) == ("ok", "bad", 3)
    assert not after.json["profiles"]["portable-cpu"]["supported"]


def test_doctor_says_which_known_answers_came_out_otherwise(marin: Marin, answered: list[str]) -> None:
    assert marin("doctor", "--json").json["exact"] == {"known_answers": True, "differing": []}
    answered.append("sums")
    done = marin("doctor", "--json")
    (check,) = [check for check in done.json["checks"] if check["name"] == "exact"]
    assert (check["health"], done.json["exact"]["differing"]) == ("note", ["sums"])
    assert "gives other bits here: sums" in check["found"]


def test_doctor_says_what_it_found(marin: Marin, root: Path) -> None:
    done = marin("doctor", "--json")
    checks = {check["name"]: check for check in done.json["checks"]}
    assert {"system", "processor", "cores", "settings", "python", "versions", "root", "key", "space", "steps"} <= set(
        checks
    )
    profile = done.json["profiles"]["portable-cpu"]
    assert profile["supported"] == (done.status == 0)
    assert bool(profile["reasons"]) != profile["supported"]
    assert done.json["environment"]["lock"].startswith("sha256:")
    told = marin("doctor").out
    assert all(name in told for name in checks)


def test_doctor_without_a_root_is_no_obstacle(marin: Marin) -> None:
    checks = {check["name"]: check for check in marin("doctor", "--json").json["checks"]}
    assert checks["root"]["health"] == "note"
    assert "marin init" in checks["root"]["found"]
    assert not Path(".marin").exists()


def test_a_setting_against_the_contract_is_an_obstacle(marin: Marin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARIN_ARITHMETIC", raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX512")
    done = marin("doctor", "--json")
    assert done.status == 3
    told = [check for check in done.json["checks"] if check["name"] == "settings" and check["health"] == "bad"]
    assert told and all("XLA_FLAGS" in check["found"] for check in told)
    assert "settings" in done.json["profiles"]["portable-cpu"]["reasons"][0]
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_max_isa=AVX512"


def described_as(cpu: Processor, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (environment, arithmetic, diagnosis):
        monkeypatch.setattr(module, "processor", lambda: cpu)


def test_a_processor_without_avx2_is_an_obstacle(marin: Marin, monkeypatch: pytest.MonkeyPatch) -> None:
    old = parse_cpuinfo("model name : Old One\nflags : fpu sse2 avx\n", "x86_64")
    described_as(old, monkeypatch)
    done = marin("doctor")
    assert done.status == 3
    assert "Old One: lacks" in done.out and "avx2" in done.out
    assert "Same bits on this machine (portable-cpu): no" in done.out
    assert "Same bits on this machine (exact): yes" in done.out


@pytest.mark.parametrize("system", [("Linux", "aarch64"), ("Darwin", "arm64")])
def test_another_architecture_honours_exact_alone(
    marin: Marin, answered: list[str], monkeypatch: pytest.MonkeyPatch, system: tuple[str, str]
) -> None:
    monkeypatch.delenv("MARIN_ARITHMETIC", raising=False)
    monkeypatch.setattr(diagnosis.platform, "system", lambda: system[0])
    monkeypatch.setattr(diagnosis.platform, "machine", lambda: system[1])
    arm = parse_cpuinfo("CPU implementer : 0x41\nCPU part : 0xd0c\nFeatures : asimd\n", system[1])
    described_as(arm, monkeypatch)
    done = marin("doctor", "--json")
    found = {name: profile["supported"] for name, profile in done.json["profiles"].items()}
    assert (done.status, found["portable-cpu"], found["exact"]) == (3, False, True)
    answered.append("step")
    assert marin("doctor", "--json").json["profiles"]["exact"] == {
        "supported": False,
        "reasons": ["other bits in step"],
    }


def test_a_skylake_without_avx512_honours_exact_alone(marin: Marin, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "the processor is a Skylake without AVX-512"
    monkeypatch.setattr(
        diagnosis.arithmetic, "unsupported", lambda one: reason if one.profile == "portable-cpu" else None
    )
    profiles = marin("doctor", "--json").json["profiles"]
    assert (profiles["portable-cpu"]["supported"], profiles["exact"]["supported"]) == (False, True)
    assert reason in profiles["portable-cpu"]["reasons"][0]


def test_versions_are_compared_with_the_lock() -> None:
    lock = environment.pinned(
        "jax==0.11.2 \\\n    --hash=sha256:aa\nML_dtypes==0.6.0\nnumpy==2.0 ; python_version > '3'\n# x==1\n"
    )
    assert lock == {"jax": "0.11.2", "ml-dtypes": "0.6.0", "numpy": "2.0"}
    here = {"jax": "0.11.2", "ml_dtypes": "0.6.0", "numpy": "2.1", "scipy": "1"}
    good = compare_versions(lock, ("jax", "ml_dtypes", "scipy"), here.__getitem__)
    assert good.health is Health.OK
    bad = compare_versions(lock, ("jax", "numpy"), here.__getitem__)
    assert bad.health is Health.BAD
    assert bad.found == "numpy: expected 2.0, found 2.1"


def test_the_versions_of_this_environment_are_those_of_the_lock() -> None:
    project = Path(diagnosis.__file__).parents[2]
    wanted = environment.pinned((project / "requirements.lock").read_text())
    assert {name.replace("_", "-") for name in environment.PACKAGES} <= set(wanted)
    assert "://" not in (project / "requirements.lock").read_text()
    assert json.loads(json.dumps(wanted)) == wanted
