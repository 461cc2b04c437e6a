"""The verdicts on a run that its user's own loop recorded (:mod:`marin.loops.loop`).

The ledger does not know that loop, so nothing of it can be made again here: its signatures, its order and its bytes are
judged, and the rest is claimed, until a user who has the program gives a command (``marin verify RUN --by COMMAND``,
:mod:`marin.verify.judges.command`).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ledger import Malformed, StateManifest
from marin.errors import UsageError
from marin.history.run import Run
from marin.verify.case import Case
from marin.verify.segments.compare import Divergence
from marin.verify.verdict import NOT_RUN, Verdict

OWN = "recorded by a loop of its user's own, which nothing here can execute"


def judge_lists(case: Case) -> tuple[str, ...]:
    """What is wrong with the stored lists of tensors: each gives the state's digest."""
    wrong = []
    for fact in case.run.loop:
        if not fact.body.manifest:
            continue
        try:
            found = StateManifest.parse(case.store.read(fact.body.manifest)).digest
        except Malformed as error:
            found = str(error)
        if found != fact.body.state:
            wrong.append(
                f"list of tensors after train step {fact.body.end - 1}: expected that of {fact.body.state}, found {found}"
            )
    return tuple(wrong)


@dataclass(frozen=True)
class LoopVerdicts:
    """What came of executing the command."""

    training: Verdict
    model: Verdict
    divergence: Divergence | None = None
    losses: Mapping[int, float] | None = None


def unrequested_verdict(run: Run, name: str) -> Verdict:
    """The verdict ``name`` where nobody asks for it, with the reason where a run of this kind can have no other."""
    if not run.is_loop or name in run.answerable:
        return NOT_RUN
    if name == "model":
        return Verdict("NOT_RUN", ("the loop saved no output",))
    return Verdict("NOT_RUN", (f"it was {OWN}: what it saw is compared by the digest of each batch",))


def check_command_wanted(run: Run, command: str) -> None:
    """Raises :class:`UsageError` where a command is given for a run that needs none."""
    if command and not run.is_loop:
        raise UsageError(
            "this run needs no command",
            where="--by",
            expected="a run of a loop of one's own (marin.start_run)",
            found=f"run {run.run}, which the installed code executes again",
            cure="leave --by out",
        )
    if command:
        try:
            parts = shlex.split(command)
        except ValueError as error:
            raise UsageError(
                "not a command", where="--by", expected="words", found=str(error), cure="mind quotes"
            ) from None
        if not parts:
            raise UsageError(
                "not a command", where="--by", expected="a program and its arguments", found="nothing", cure="name one"
            )
