"""Whether a result is what a recorded run says, and whether that run can be made again: for one that is faster than its
reference points, or that anybody doubts.

The log is exported from the record anew and compared with the file, line by line; then every phase of the run is replayed by
`marin verify`. What the submitters say of themselves (organization, platform, status, contact) is taken from the file; where the
exporting code stood in its source (``file``, ``lineno``) may differ between versions, but not so that MLPerf's checkers take the
line for another. All else has to be the same, times too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from ledger import LogCheckpoint, LogReader, VerifierKey
from marin.errors import DataError, UsageError
from marin.execution.phases import chain
from marin.history.run import Run
from marin.history.runs import History, load, resolve
from marin.plugins.mlperf.benchmark import Benchmark, Submission
from marin.plugins.mlperf.checkers import REFERENCE_POINTS
from marin.plugins.mlperf.lines import Line, check_agreed, lines, phases, until
from marin.plugins.mlperf.result import ResultLine, bytes_of, read_result
from marin.plugins.mlperf.seeding import seeding
from marin.record.root import Root
from marin.record.verdicts import EVALUATION, NAMES, SHOWN
from marin.verify.alone.judgement import Judgement
from marin.verify.verdict import Outcome, Verdict, judge_safely, worst

KINDS = {"event": "POINT_IN_TIME", "start": "INTERVAL_START", "end": "INTERVAL_END"}
MODEL = "model"
"""The verdict on a run's last state, and on what was measured of it."""
SHOWN_LINES = 5
RESULT = "result"
"""The verdict on the file itself, before those on its run."""


def read_submission(said: Sequence[ResultLine]) -> Submission:
    """What the submitters say of themselves in a result.

    Raises:
        DataError: it is said in a form that there is not.
    """
    fields: dict[str, object] = {}
    for one in said:
        if one.entry["key"].startswith("submission_"):
            fields.setdefault(one.entry["key"].removeprefix("submission_"), one.entry.get("value"))
    fields.pop("benchmark", None)
    try:
        return msgspec.convert(fields, Submission)
    except msgspec.ValidationError as error:
        raise DataError(
            "not what a submission says of itself",
            where="submission_*",
            expected=", ".join(Submission.__struct_fields__),
            found=str(error),
            cure="give the file as it was exported",
        ) from None


def differences(said: Sequence[ResultLine], recorded: Sequence[Line]) -> list[str]:
    """Where a result differs from the lines of the record, as sentences; none where it does not."""
    wanted = [_entry(line) for line in recorded]
    found = []
    for one, entry in zip(said, wanted, strict=False):
        if _text(one.entry) != _text(entry):
            found.append(f"line {one.number}: {_difference(one.entry, entry)}")
            if len(said) != len(wanted):
                break  # what follows is shifted
    if len(said) != len(wanted):
        found.append(f"{len(said)} lines, the record has {len(wanted)}")
    return found


def _entry(line: Line) -> dict[str, Any]:
    return {
        "namespace": "",
        "time_ms": line.time,
        "event_type": KINDS[line.kind],
        "key": line.key,
        "value": line.value,
        "metadata": line.metadata,
    }


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _difference(said: dict[str, Any], recorded: dict[str, Any]) -> str:
    if said["key"] != recorded["key"]:
        return f"key: recorded {recorded['key']}, here {said['key'][:80]}"
    here, there = ({**one, **_metadata(one)} for one in (said, recorded))
    names = [name for name in {**there, **here} if _text(here.get(name)) != _text(there.get(name))]
    name = next(name for name in (*names, "metadata") if name != "metadata" or len(names) <= 1)
    return f"{said['key']}: {name}: recorded {_text(there.get(name))[:120]}, here {_text(here.get(name))[:120]}"


def _metadata(entry: dict[str, Any]) -> dict[str, Any]:
    found = entry.get("metadata")
    return {f"metadata.{key}": value for key, value in found.items()} if isinstance(found, dict) else {}


def compare(data: bytes, where: str, history: History, last: Run, benchmark: Benchmark, *, origin: str) -> Verdict:
    """Whether a result is the log of ``last``, as the record has it.

    Raises:
        MarinError: the record has no log, or another seed; or the result is not a result of MLPerf.
    """
    said = read_result(data, where)
    if mistaken := [one.mistaken for one in said if one.mistaken]:
        return Verdict("FAIL", tuple(mistaken[:SHOWN_LINES]))
    try:
        recorded = lines(history, last, benchmark, read_submission(said), seeding(history, last), origin=origin)
    except UsageError as error:  # here it is the submission that is wrong, not the command
        return Verdict("FAIL", (str(error),))
    if found := differences(said, recorded):
        more = (f"and {len(found) - SHOWN_LINES} more",) if len(found) > SHOWN_LINES else ()
        return Verdict("FAIL", (*found[:SHOWN_LINES], *more))
    return Verdict("PASS", (f"all {len(said)} lines are those of the record",))


def judge_result(
    file: Path, root: Root, run: str, benchmark: Benchmark, trusted: Sequence[VerifierKey], *, record: bool
) -> Judgement:
    """Whether ``file`` is the log of ``run``, and the verdicts of the run's replay, the worst of its phases each.

    Args:
        trusted: keys that the verifier named. ``record``: the verdicts are recorded, as ``marin verify`` does.
    """
    reader = root.reader(trusted)
    history = root.history_as_read(reader, trusted)
    last = load(history, resolve(history, run))
    verdicts: dict[str, Verdict] = dict.fromkeys((RESULT, *NAMES), Verdict("NOT_RUN"))

    def against_the_record() -> Verdict:
        check_agreed(history, last)
        return compare(bytes_of(file), file.name, history, last, benchmark, origin=root.verifier.name)

    compared = judge_safely(against_the_record)
    if compared.outcome == "PASS":
        blocks = until(phases(chain(history, last)), benchmark.target)
        size = blocks[0].run.recipe.trainer.batch_size
        compared = replace(compared, lines=(*compared.lines, _beside(benchmark, size, blocks[-1].last)))
        verdicts |= _replays(root, reader, [block.run.run for block in blocks], trusted, record)
    return Judgement(last.run, verdicts | {RESULT: compared})


def _beside(benchmark: Benchmark, size: int, samples: int) -> str:
    """How fast it was, beside the reference."""
    points = json.loads((REFERENCE_POINTS / f"rcps_{benchmark.name}.json").read_text("utf-8"))
    needed = sorted(points.get(f"{benchmark.name}_ref_{size}", {}).get("Samples to converge", ()))
    beside = f"; the reference needs {fmean(needed[1:-1]):g}, {needed[0]} at least" if len(needed) > 2 else ""
    return f"{samples} samples at batch size {size}{beside}"


def _replays(
    root: Root, reader: LogReader, runs: Sequence[str], trusted: Sequence[VerifierKey], record: bool
) -> dict[str, Verdict]:
    """Replaying the last phase executes those before it too; what is left of them is what each measured."""
    seen = reader.checkpoint()
    found: dict[str, list[Verdict]] = {}
    for run in runs:
        part = () if run == runs[-1] else ("--only", MODEL)
        words = ["--json", *part, *(() if record else ("--no-record",)), *(f"--vkey={key}" for key in trusted)]
        command = [sys.executable, "-m", "marin.cli.main", "-q", "--root", root.absolute, "verify", *words, "--", run]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False, env=os.environ)
        try:
            report = json.loads(done.stdout)
        except ValueError:
            none = Verdict("UNAVAILABLE", (f"run {run}: marin verify ended with status {done.returncode}",))
            return dict.fromkeys(NAMES, none)
        for name in SHOWN:
            outcome: Outcome = report["verdicts"][name]
            if (name in NAMES and not part) or outcome != "NOT_RUN":
                said = [f"run {run}: {line}" for line in report["details"][name]]
                found.setdefault(name, []).append(Verdict(outcome, tuple(said)))
        if not _same_log(reader, seen, report["log_checkpoint"]):
            other = Verdict("FAIL", (f"run {run}: replayed from another log than the compared one",))
            found.setdefault("ledger", []).append(other)
    return {
        name: Verdict(worst([one.outcome for one in each]), tuple(line for one in each for line in one.lines))
        for name in (*NAMES, EVALUATION)
        if (each := found.get(name))
    }


def _same_log(reader: LogReader, seen: LogCheckpoint, verified: dict[str, Any]) -> bool:
    """Whether what was verified is the log that was compared, which may have grown since."""
    size = int(verified["size"])
    if verified["origin"] != seen.origin or size < seen.size or reader.refresh().size < size:
        return False
    root: bytes = reader.root(size)
    return re.sub(r"^sha256:", "", str(verified["root"])) == root.hex()
