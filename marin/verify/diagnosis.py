"""What stands between this machine and the bits of a published run: checks that look and change nothing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ledger import LedgerError
from marin.errors import NotInstalled
from marin.process import arithmetic, landlock
from marin.process.cache import compilation_cache
from marin.provenance import environment
from marin.provenance.code import LOCK, lock_digest
from marin.provenance.extras import advice
from marin.provenance.plugins import load_plugin
from marin.provenance.processor import Processor, processor
from marin.recipe.schema import Arithmetic, Execution
from marin.record.root import open_root
from marin.record.trust.keyfiles import key_path
from marin.work import answers

OLDEST_PYTHON, NEWEST_PYTHON = (3, 12), (3, 14)
ROOM = 2 * 10**9
"""Bytes of free space below which a note is made: the default pipeline needs less, a real one more."""

PROFILES = {
    "portable-cpu": Arithmetic(),
    "exact": Arithmetic(profile="exact", logical_shards=1, reduction="integer", isa="any", xla_flags=()),
}
"""Those that this machine is looked at for; the others are those of one kind of device."""


STEPS = "marin/training/step/known.py"
WHOLE_STEPS = """
from importlib.metadata import version
from marin.process.arithmetic import apply
from marin.recipe.schema import Arithmetic, Execution
apply(Arithmetic(), Execution())
from marin.training.step import known
import json
print(json.dumps({"found": known.whole(), "expected": known.ANSWERS.get(version("jaxlib"))}))
"""
"""A process's program: the contract is in force before jax is there."""


class Health(Enum):
    """OK: fine. NOTE: worth knowing, no obstacle to the same bits. BAD: an obstacle."""

    OK = "ok"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True)
class Check:
    """One thing looked at: what was found, and what to do about it. ``profile``: the only one that it is about."""

    name: str
    health: Health
    found: str
    cure: str = ""
    profile: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All checks, and the environment that they were made in."""

    checks: tuple[Check, ...]
    environment: Mapping[str, Any]
    inexact: tuple[str, ...] | None = ()
    """Groups of operations whose known answer (docs/exact.md) did not come out; None where none was asked for."""

    @property
    def able(self) -> bool:
        """Whether nothing stands in the way of the default profile's bits."""
        return not self.reasons("portable-cpu")

    def reasons(self, profile: str) -> list[str]:
        """What stands in the way of the bits of ``portable-cpu`` or ``exact``."""
        bad = [check for check in self.checks if check.health is Health.BAD and check.profile in ("", profile)]
        wrong = self.inexact or () if profile == "exact" else ()
        return [*(f"{check.name}: {check.found}" for check in bad), *(f"other bits in {name}" for name in wrong)]

    def describe(self) -> dict[str, Any]:
        """As ``marin doctor --json`` prints it."""
        reasons = {profile: self.reasons(profile) for profile in PROFILES}
        return {
            "profiles": {
                **{profile: {"supported": not why, "reasons": why} for profile, why in reasons.items()},
                **_others(),
            },
            "exact": {
                "known_answers": None if self.inexact is None else not self.inexact,
                "differing": list(self.inexact or ()),
            },
            "checks": [
                {"name": c.name, "health": c.health.value, "found": c.found, "cure": c.cure} for c in self.checks
            ],
            "environment": dict(self.environment),
        }


def _others() -> dict[str, Any]:
    """Whether recipes of the other profiles could be executed: a device is there; for a GPU or a TPU its kind is the
    recipe's."""
    model = processor().arm_model
    others = (
        Arithmetic(profile="arm-cpu", isa="aarch64", device_kind=model),
        Arithmetic(profile="gpu", device_kind="any"),
        Arithmetic(profile="tpu", device_kind="any"),
    )
    found = {one.profile: arithmetic.unsupported(one) for one in others}
    told: dict[str, Any] = {}
    for profile, reason in found.items():
        told[profile] = {"supported": reason is None, "reasons": [reason] if reason else []}
    told["arm-cpu"]["device_kind"] = model
    return told


def diagnose(*, project: Path, working: Path, root: str, variables: Mapping[str, str] = os.environ) -> Diagnosis:
    """Look at everything. ``project`` holds the code and its lock, ``root`` is the ledger's location."""
    missing = ", ".join(name for name in ("jax", "levanter") if find_spec(name) is None)  # an auditor has none
    inexact, exact = _exact(missing)
    checks = (
        _system(),
        _processor(processor()),
        _cores(),
        *_settings(variables),
        _python(),
        _versions(project),
        *([_training(missing)] if missing else []),
        *_programs(("git", "dvc")),
        *_root(root),
        _space(working if "://" in root else Path(root)),
        _confinement(),
        *exact,
    )
    made = Diagnosis(checks, environment.describe(lock_digest(project)), inexact)
    if missing or made.reasons("portable-cpu"):
        return made
    return replace(made, checks=(*checks, _steps_check(whole_steps())))


def whole_steps() -> Mapping[str, str | None]:
    """The digest of whole train steps under portable-cpu: ``found`` here, empty where they did not end well, and ``expected`` of
    this compiler. Executed in a process of its own, unless the right one came out here before, in a training or in this."""
    kept = answers.answer(STEPS)
    if right := kept.digest:
        return {"found": right, "expected": right}
    text = subprocess.run([sys.executable, "-c", WHOLE_STEPS], capture_output=True, text=True, check=False).stdout
    try:
        told = json.loads(text)
        found: dict[str, str | None] = {"found": told["found"], "expected": told["expected"]}
    except (ValueError, TypeError, KeyError):
        return {"found": "", "expected": None}
    if found["found"] and found["found"] == found["expected"]:
        kept.keep(found["found"])
    return found


def _steps_check(told: Mapping[str, str | None]) -> Check:
    compiler = environment.versions().get("jaxlib", "?")
    if told["found"] and told["found"] == told["expected"]:
        found = f"whole train steps of a Llama and a GPT-2 give the known answer of jaxlib {compiler} (portable-cpu)"
        return Check("train steps", Health.OK, found)
    said = (
        "no known answer of whole train steps" if told["found"] else "train steps under portable-cpu did not end well"
    )
    if told["expected"]:
        said = "whole train steps of a Llama and a GPT-2 do not give their known answer"
    cure = "install requirements.lock, or train under profile=exact"
    return Check("train steps", Health.BAD, f"{said}: jaxlib {compiler}", cure, "portable-cpu")


def _system() -> Check:
    name = f"{platform.system()} {platform.machine()}"
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        return Check("system", Health.OK, f"{name}, {'-'.join(platform.libc_ver())}")
    cure = "portable-cpu is promised on Linux x86_64 only; the profile exact on any processor"
    return Check("system", Health.BAD, name, cure, "portable-cpu")


def _processor(cpu: Processor) -> Check:
    if not cpu.is_x86_64_v3:
        found = f"{cpu.model}: lacks {', '.join(cpu.missing_for_v3)}"
    elif reason := arithmetic.unsupported(Arithmetic()):
        found = f"{cpu.model}: {reason}"
    else:
        return Check("processor", Health.OK, f"{cpu.model}: x86-64-v3")
    cure = "portable-cpu needs a processor of the level x86-64-v3 (Haswell, Zen or newer); the profile exact does not"
    return Check("processor", Health.BAD, found, cure, "portable-cpu")


def _training(missing: str) -> Check:
    cure = f"{advice(['train'])}; logs and dossiers are judged without it"
    return Check("training", Health.BAD, f"nothing is trained or replayed here: {missing} not installed", cure)


def inexact_programs() -> tuple[str, ...]:
    """Groups of operations of exact arithmetic whose known answer did not come out, executed in a process of its own:
    this one may have to load jax under other settings. ``("all of it",)`` where it did not end well.

    Raises:
        NotInstalled: the plugin of exact arithmetic is not there.
    """
    program = load_plugin("marin.profiles", "exact", "marin doctor").KNOWN
    kept = {"JAX_COMPILATION_CACHE_DIR": str(compilation_cache()), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    done = subprocess.run(
        [sys.executable, "-m", program], capture_output=True, text=True, env={**os.environ, **kept}, check=False
    )
    try:
        return tuple(str(name) for name in json.loads(done.stdout))
    except ValueError:
        return ("all of it",)


def _exact(missing: str) -> tuple[tuple[str, ...] | None, list[Check]]:
    """Groups of operations that give other bits here, None where nobody can say; and what is said of that."""
    if missing:
        return None, []
    try:
        differing = inexact_programs()
    except NotInstalled as error:
        return None, [Check("exact", Health.NOTE, f"nothing is computed under the profile exact here: {error}")]
    return differing, [_exact_check(differing)]


def _exact_check(differing: tuple[str, ...]) -> Check:
    if not differing:
        compiler = environment.versions().get("jaxlib", "?")
        found = f"exact arithmetic (docs/exact.md) gives every known answer here, by jaxlib {compiler}; no version decides it"
        return Check("exact", Health.OK, found)
    return Check(
        "exact",
        Health.NOTE,
        f"exact arithmetic (docs/exact.md) gives other bits here: {', '.join(differing)}",
        "the profile portable-cpu does not need it; please report processor and compiler",
    )


def _cores() -> Check:
    return Check(
        "cores", Health.OK, f"{environment.available_cores()} of {os.cpu_count()}; any number gives the same bits"
    )


def _settings(variables: Mapping[str, str]) -> Iterator[Check]:
    for profile, contract in PROFILES.items():
        try:
            arithmetic.apply(contract, Execution(), dict(variables))
        except LedgerError as error:
            yield Check("settings", Health.BAD, str(error), profile=profile)
        else:
            yield Check("settings", Health.OK, f"no variable contradicts the contract of {profile}")


def _python() -> Check:
    found = platform.python_version()
    if OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        return Check("python", Health.OK, found)
    wanted = f"{'.'.join(map(str, OLDEST_PYTHON))} to {'.'.join(map(str, NEWEST_PYTHON))}"
    return Check("python", Health.BAD, found, f"the locked versions are for Python {wanted}")


def _versions(project: Path) -> Check:
    lock = project / LOCK
    if not lock.is_file():
        return Check("versions", Health.NOTE, f"no {LOCK} beside the code to compare with")
    return compare_versions(environment.pinned(lock.read_text("utf-8")), environment.PACKAGES, _installed)


def _installed(name: str) -> str:
    return environment.versions().get(name, "")


def compare_versions(wanted: Mapping[str, str], names: tuple[str, ...], installed: Callable[[str], str]) -> Check:
    """Whether the packages that touch the bits are those of the lock."""
    differing = list(environment.differing(wanted, names, installed))
    if not differing:
        return Check("versions", Health.OK, f"the {len(names)} packages that touch the bits are as {LOCK} says")
    cure = (
        "run `make repro`: it installs the lock into .venv; under exact versions decide nothing, the known answers do"
    )
    return Check("versions", Health.BAD, "; ".join(differing), cure, "portable-cpu")


def _programs(names: tuple[str, ...]) -> Iterator[Check]:
    beside = str(Path(sys.executable).parent)
    for name in names:
        path = shutil.which(name) or shutil.which(name, path=beside)
        if path:
            yield Check(name, Health.OK, "found")
        else:
            yield Check(name, Health.NOTE, "not found on PATH", f"`dvc repro` needs {name}; `marin verify` does not")


def _root(location: str) -> Iterator[Check]:
    try:
        root = open_root(location)
        size = root.reader().checkpoint().size
    except LedgerError as error:
        yield Check("root", Health.NOTE, str(error))
        return
    yield Check("root", Health.OK, f"{location}: log {root.verifier.name} with {size} events")
    try:
        root.signer()
    except LedgerError as error:
        yield Check("key", Health.NOTE, str(error))
    else:
        yield Check("key", Health.OK, f"{key_path(root.verifier.name)}")


def _confinement() -> Check:
    version = landlock.version()
    if version:
        return Check(
            "steps", Health.OK, f"Landlock {version}: the kernel keeps steps and what they start to their own folders"
        )
    return Check(
        "steps",
        Health.NOTE,
        "no Landlock: what child processes and C libraries of a step write elsewhere is not seen",
        "a kernel from 5.13 on, with landlock in its list of security modules; some containers keep it away",
    )


def _space(path: Path) -> Check:
    existing = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    found = f"{free / 1e9:.1f} GB free at {existing}"
    if free < ROOM:
        return Check("space", Health.NOTE, found, "a run may stop with a full disk; it resumes where it stopped")
    return Check("space", Health.OK, found)
