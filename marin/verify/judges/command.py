"""The verdicts on a run of a user's own loop where the verifier gives the command that makes it again.

An entry point of the group ``marin.judges``, for ``marin verify RUN --by COMMAND``. The command is executed twice, each time into
an empty root of its own, and each loss, batch, state and output is compared with the record. Nothing of the command is read from
the ledger.
"""

from __future__ import annotations

import hashlib
import logging
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ledger import LedgerError, StateManifest
from marin.errors import UsageError
from marin.history.run import Run
from marin.history.runs import load, run_ids
from marin.process import running
from marin.process.text import several
from marin.record.creation import create_root
from marin.record.events import LOOP
from marin.record.root import open_root
from marin.verify.case import Case
from marin.verify.judges.loop import LoopVerdicts, unrequested_verdict
from marin.verify.segments.compare import Divergence
from marin.verify.verdict import Verdict

logger = logging.getLogger(__name__)

STDERR = 2
"""Where the command's own words go: standard output is for the report."""


def judge_by_command(case: Case, command: str, folder: Path) -> LoopVerdicts:
    """Execute the verifier's own ``command`` twice in the present folder, and compare.

    Training is PASS where every loss, batch and state is the recorded one, both times, and the last recorded segment has a
    state; PARTIAL where none has: equal losses say little. The model is PASS where every output is the recorded one.

    Raises:
        UsageError: the command cannot be executed, ends with an error, or records no run.
    """
    runs = [_execute(command, folder / str(turn)) for turn in (1, 2)]
    for turn, (found, states) in enumerate(runs, 1):
        divergence = _compare(case.run, _states(case), found, states)
        if divergence is None:
            continue
        between = _compare(runs[0][0], runs[0][1], *runs[1])
        said = (
            f"the command gives other bits each time: {between.describe()}"
            if between is not None
            else "the command gives the same bits both times, and not these"
        )
        what = (divergence.describe(), said, f"in execution {turn} of `{command}`")
        model = Verdict("NOT_RUN", ("the training is another",))
        return LoopVerdicts(Verdict("FAIL", what), model, divergence, found.losses)
    found = runs[0][0]
    count, last = len(case.run.losses), case.run.loop[-1].body if case.run.loop else None
    line = f"{several(count, 'train steps')} executed twice by `{command}`, each equal to the record"
    stateless = last is None or not last.state
    training = (
        Verdict(
            "PARTIAL", (line, "no state was recorded after the last of them: losses and batches alone are compared")
        )
        if stateless
        else Verdict("PASS", (line,))
    )
    return LoopVerdicts(training, _outputs(case.run, [run for run, _ in runs]), None, found.losses)


def _outputs(recorded: Run, runs: list[Run]) -> Verdict:
    names = [name for name in recorded.steps if name != LOOP]
    if not names:
        return unrequested_verdict(recorded, "model")
    wrong = [
        f"output {name}: expected {recorded.steps[name].output.digest}, found "
        f"{run.steps[name].output.digest if name in run.steps else 'none'}"
        for run in runs
        for name in names
        if name not in run.steps or run.steps[name].output.digest != recorded.steps[name].output.digest
    ]
    if wrong:
        return Verdict("FAIL", tuple(dict.fromkeys(wrong)))
    return Verdict("PASS", (f"{', '.join(names)} made again, byte for byte, both times",))


def _execute(command: str, folder: Path) -> tuple[Run, Mapping[str, StateManifest]]:
    """One execution: the run that it recorded in an empty root of its own, and its lists of tensors by state."""
    folder.mkdir(parents=True)
    own = {"MARIN_ROOT": str(folder / "root"), "MARIN_KEY": str(folder / "key"), "MARIN_PINS": str(folder / "pins")}
    arguments = shlex.split(command)
    logger.info("executing %s", command)
    origin = "replay.invalid/" + hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    try:
        with running.environment(own):
            create_root(own["MARIN_ROOT"], origin=origin)
            ended = subprocess.run(arguments, stdout=STDERR, check=False).returncode
            root = open_root(own["MARIN_ROOT"])
            history = root.history([root.verifier], fresh=True)
            names = run_ids(history)
    except OSError as error:
        raise UsageError(
            "the command cannot be executed",
            where="--by",
            expected="a program and its arguments",
            found=f"{command}: {error.strerror}",
            cure="give it as you type it in this folder, for example --by 'python train.py'",
        ) from None
    if ended != 0 or len(names) != 1:
        raise UsageError(
            "the command made no run to compare",
            where="--by",
            expected="exit status 0 and one run, by marin.start_run() in the root that MARIN_ROOT names",
            found=f"exit status {ended} and {len(names)} runs",
            cure="see what it printed above",
        )
    run = load(history, names[0])
    store = root.store_to_read()
    lists = {
        fact.body.state: StateManifest.parse(store.read(fact.body.manifest)) for fact in run.loop if fact.body.manifest
    }
    return run, lists


def _states(case: Case) -> Mapping[str, StateManifest]:
    found = {}
    for fact in case.run.loop:
        if fact.body.manifest:
            try:
                found[fact.body.state] = StateManifest.parse(case.store.read(fact.body.manifest))
            except LedgerError:
                continue  # the verdict `artifacts` says so; the state's digest is compared all the same
    return found


def _compare(
    recorded: Run, known: Mapping[str, StateManifest], found: Run, lists: Mapping[str, StateManifest]
) -> Divergence | None:
    """The first train step at which two runs differ: in what it saw, its loss, or the state after it."""
    expected, actual = _steps(recorded), _steps(found)
    for step in sorted({*expected, *actual}):
        one, other = expected.get(step), actual.get(step)
        if one is None or other is None:
            return Divergence(
                step, (), "a train step" if one else "none", "none" if one else "a train step", "train steps"
            )
        for name, left, right in zip(("batch", "loss", "state after it"), one, other, strict=True):
            if left == right:
                continue
            tensors: tuple[str, ...] = ()
            if name == "state after it" and left in known and right in lists:
                tensors = known[left].differing(lists[right])
            return Divergence(step, tensors, left or "none", right or "none", name)
    return None


def _steps(run: Run) -> dict[int, tuple[str, str, str]]:
    """Batch, loss and state after each train step, as they were recorded."""
    told = {}
    for fact in run.loop:
        body = fact.body
        for place, (batch, loss) in enumerate(zip(body.batches, body.losses, strict=True)):
            last = body.start + place == body.end - 1
            told[body.start + place] = (batch, loss, body.state if last else "")
    return told
