"""What differs between where a run was made and here: recorded and present code, lock and versions, named before any bits.

The code that is executed is always the installed one, never one that a ledger names. A step whose recorded code or lock
is another may still give the same bits, and then it is proven all the same. If it does not, nothing is proven against
the run: what it was made with is not here, and the answer is UNAVAILABLE with the commands that would fetch it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from marin import environment
from marin.code import code_folder, lock_digest, provenance
from marin.pipeline import PIPELINE
from marin.plan import code_identity
from marin.replay import compare
from marin.runs import RunView

COMMIT = re.compile(r"^[0-9a-f]{40}([0-9a-f]{24})?$")


@dataclass(frozen=True)
class Surroundings:
    """``remarks``: every difference, for people. ``foreign``: step -> why what executes it here is not what the run
    executed. ``commit``: the commit that the run names, "" if it names none. ``dirty``: it was executed with changes."""

    remarks: tuple[str, ...]
    foreign: Mapping[str, str]
    commit: str
    dirty: bool

    def reasons(self, steps: Collection[str]) -> tuple[str, ...]:
        """Why ``steps`` are not executed here as they were recorded; empty when they are."""
        return tuple(dict.fromkeys(reason for step, reason in self.foreign.items() if step in steps))

    def commands(self, location: str, run: str) -> tuple[str, ...]:
        """Shell commands that would fetch what the run was made with, and verify there."""
        if not self.commit:
            return ()
        folder = f"../marin-{self.commit[:12]}"
        verify = shlex.join(["marin", "--root", location, "verify", run])
        return (f"git fetch origin {self.commit}", f"git worktree add --detach {folder} {self.commit}",
                f"make -C {folder} environment", f"{folder}/.venv/bin/{verify}")


def surroundings(run: RunView) -> Surroundings:
    """Compare what ``run`` records with what is installed here."""
    body = run.started.body
    folder = code_folder()
    present, recorded = provenance(folder), body.environment
    here = environment.describe(lock_digest(folder))
    lines = []
    if body.code.get("tree") != present.tree:
        lines.append(f"code: the run was made by commit {body.code.get('commit') or 'unknown'}"
                     f"{' with changes' if body.code.get('dirty') else ''}, this is {present.commit or 'not in Git'}"
                     f"{' with changes' if present.dirty else ''}")
    if recorded.get("lock") != here["lock"]:
        lines.append(f"environment: the run was made with lock {recorded.get('lock')}, this is {here['lock']}")
    lines += [f"environment: {line}" for line in compare.differences(recorded.get("versions"), here["versions"], "versions")]
    commit = str(body.code.get("commit") or "")
    return Surroundings(tuple(lines), _foreign(run, here["lock"]), commit if COMMIT.match(commit) else "",
                        bool(body.code.get("dirty")))


def _foreign(run: RunView, lock: str) -> dict[str, str]:
    recorded = run.started.body.code.get("steps")
    steps = recorded if isinstance(recorded, dict) else {}
    found = {}
    for step, digest in code_identity(PIPELINE, code_folder()).steps.items():
        if step in steps and steps[step] != digest:
            found[step] = f"step {step} was executed by other code: recorded {steps[step]}, installed {digest}"
        elif run.started.body.environment.get("lock") != lock:
            found[step] = f"the run was made with lock {run.started.body.environment.get('lock')}, installed is {lock}"
    return found
