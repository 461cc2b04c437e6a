"""What differs between where a run was made and here: recorded and present code, lock and versions, named before any
bits.

The code that is executed is always the installed one, never one that a ledger names. A step whose recorded code or lock
is another may still give the same bits, and then it is proven all the same. If it does not, nothing is proven against
the run: what it was made with is not here, and the answer is UNAVAILABLE with the commands that would fetch it. So too
where packages are installed beside the lock, in other versions than it has. What a program of profile ``exact`` gives is
no such case: the record has its digest, and it is the same program here (:mod:`marin.verify.segments.programs`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from marin.errors import NotInstalled
from marin.pipeline.stages import PIPELINE
from marin.provenance import environment
from marin.provenance.code import LOCK, NO_LOCK, Known, code_folder, files_digest, lock_digest, provenance
from marin.recipe.schema import Recipe
from marin.record.events import StepStarted
from marin.verify.derivation.record import RunRecord, facts
from marin.verify.segments import compare
from marin.verify.verdict import Verdict

DEFINED = "it excuses nothing, for the programs are the recorded ones, and docs/exact.md defines what they give"
COMMIT = re.compile(r"^[0-9a-f]{40}([0-9a-f]{24})?$")


@dataclass(frozen=True)
class EnvironmentDiff:
    """``remarks``: every difference, for people. ``foreign``: step -> why what executes it here is not what the run
    executed. ``commit``: the commit that the run names, "" if it names none. ``dirty``: it was executed with
    changes."""

    remarks: tuple[str, ...]
    foreign: Mapping[str, str]
    commit: str
    dirty: bool

    def reasons(self, steps: Collection[str]) -> tuple[str, ...]:
        """Why ``steps`` are not executed here as they were recorded; empty when they are."""
        return tuple(dict.fromkeys(reason for step, reason in self.foreign.items() if step in steps))

    def commands(self, location: str, run: str) -> tuple[str, ...]:
        """Shell commands that would fetch what the run was made with, say which branches have it, and verify there."""
        if not self.commit:
            return ()
        folder = f"../marin-{self.commit[:12]}"
        verify = shlex.join(["marin", "--root", location, "verify", run])
        return (
            "git fetch origin",
            f"git branch --remotes --contains {self.commit}",
            f"git worktree add --detach {folder} {self.commit}",
            f"make -C {folder} environment",
            f"{folder}/.venv/bin/{verify}",
        )


def environment_diff(record: RunRecord) -> EnvironmentDiff:
    """Compare what a run records with what is installed here."""
    body = record.run.started.body
    folder = code_folder()
    read: Known = {}
    present, recorded = provenance(folder, read), body.environment
    lock, versions = lock_digest(folder), environment.versions()
    lines = []
    if not record.run.is_loop and body.code.get("tree") != present.tree:
        lines.append(
            f"code: the run was made by commit {body.code.get('commit') or 'unknown'}"
            f"{' with changes' if body.code.get('dirty') else ''}, this is {present.commit or 'not in Git'}"
            f"{' with changes' if present.dirty else ''}"
        )
    if recorded.get("lock") != lock:
        present_lock = f"this is {lock}" if lock != NO_LOCK else "there is none here"
        lines.append(f"environment: the run was made with lock {recorded.get('lock')}, {present_lock}")
    lines += [f"environment: {line}" for line in changed_versions(recorded.get("versions"), versions)]
    if record.run.is_loop:
        lines += [f"environment: {line}" for line in changed_machine(recorded, environment.describe(lock))]
    commit = str(body.code.get("commit") or "")
    return EnvironmentDiff(
        tuple(lines), _foreign(record, lock, read), commit if COMMIT.match(commit) else "", bool(body.code.get("dirty"))
    )


def changed_versions(recorded: object, here: Mapping[str, object]) -> list[str]:
    """A line for each package of another version, and one for all that the run had and that are not installed here."""
    if not isinstance(recorded, Mapping):
        return compare.differences(recorded, dict(here), "versions")
    absent = [str(name) for name, version in recorded.items() if version is not None and here.get(name) is None]
    lines = compare.differences(
        {name: version for name, version in recorded.items() if name not in absent},
        {name: version for name, version in here.items() if name not in absent},
        "versions",
    )
    return [*lines, *([f"not installed here: {', '.join(absent)}"] if absent else [])]


def changed_machine(recorded: Mapping[str, object], here: Mapping[str, object]) -> list[str]:
    """A line for each property of the machine that changes the bits of other people's libraries (docs/census.md), and with the
    first what may be done: cores, the processor and variables of threads. A pipeline's own steps are under a contract."""
    lines = compare.differences(_machine(recorded), _machine(here))
    advice = "; of most libraries this changes the bits (docs/census.md): `taskset -c` gives a number of cores"
    return [f"{line}{'' if place else advice}" for place, line in enumerate(lines)]


def _machine(environment: Mapping[str, object]) -> dict[str, object]:
    parts = {name: value for name, value in environment.items() if isinstance(value, Mapping)}
    threads = {name: value for name, value in parts.get("settings", {}).items() if str(name).endswith("_THREADS")}
    return {
        "cores": parts.get("cores", {}).get("available"),
        "processor": parts.get("processor", {}).get("model"),
        "settings": threads,
    }


def unless_environment_differs(
    verdict: Verdict, differs: EnvironmentDiff, steps: Collection[str], location: str, run: str
) -> Verdict:
    """``verdict`` on ``steps``. A difference that was found by executing other code than the run's, or other locked
    packages, proves nothing against it: UNAVAILABLE, with the commands that bring what the run was made with. What
    contradicts itself without being executed stays a FAIL."""
    reasons = differs.reasons(steps) if verdict.outcome == "FAIL" and verdict.executed else ()
    if not reasons:
        return verdict
    if verdict.defined:
        return replace(verdict, lines=(*verdict.lines, *(f"{reason}: {DEFINED}" for reason in reasons)))
    commands = differs.commands(location, run) or ("no command: the run names no commit",)
    changed = ["the commit was executed with changes, which its diff in the store has"] if differs.dirty else []
    proves = "so the difference below proves nothing; what the run was made with is had by"
    return Verdict("UNAVAILABLE", (*reasons, proves, *commands, *changed, *verdict.lines))


def _foreign(record: RunRecord, lock: str, read: Known) -> dict[str, str]:
    """By what each step's own beginning says: a plan that the run's beginning lists decides nothing."""
    installed = _installed(record, read)
    beside = "; ".join(environment.beside(code_folder() / LOCK))
    found = {}
    for stretch in record.stretches:
        for begun in facts(stretch, StepStarted):
            step, view = begun.body.step, record.run.steps.get(begun.body.step)
            if step not in installed or (view is not None and view.identity != begun.body.identity):
                continue
            locked = begun.body.lock or stretch.started.body.environment.get("lock")
            if isinstance(installed[step], NotInstalled):
                found[step] = str(installed[step])
            elif begun.body.code != installed[step]:
                found[step] = (
                    f"step {step} was executed by other code: recorded {begun.body.code}, installed {installed[step]}"
                )
            elif locked != lock:
                found[step] = f"step {step} was executed with lock {locked}, installed is {lock}"
            elif beside:
                found[step] = f"step {step} was executed with the versions of {LOCK}; installed beside it: {beside}"
    return found


def _installed(record: RunRecord, read: Known) -> dict[str, str | NotInstalled]:
    """The code of each step of the pipeline as it is installed here, under the run's recipe; or which plugin is not."""
    recipe = record.run.readable_recipe or Recipe()
    found: dict[str, str | NotInstalled] = {}
    for step in PIPELINE.steps:
        try:
            found[step.name] = files_digest(code_folder(), step.code(recipe), read)
        except NotInstalled as error:
            found[step.name] = error
    return found
