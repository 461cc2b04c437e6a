"""Groups of documents left out, one after another or side by side, and what came of each: recorded as soon as it is known.

What is recorded already is not executed again, so a measurement that was broken off goes on. Asked to (``again``), and in
a log of someone else, it is executed again and must come out the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger import Draft, Store
from marin.data.documents import VALIDATION
from marin.errors import UsageError
from marin.evaluation.code import deciding_digest
from marin.history.run import Fact, Run
from marin.pipeline.stages import PIPELINE
from marin.plugins.evaluation.heldout.sets import CODE
from marin.plugins.unlearning.attribution.groups import Group
from marin.plugins.unlearning.attribution.leaving_out import WORKER, LeavingOutSetup, Task, TrainedWithout, encode_sums
from marin.plugins.unlearning.kinds import ATTRIBUTION_MEASURED, AttributionMeasured, MeasuredLoss, attribution_stream
from marin.provenance.code import code_folder, lock_digest
from marin.recipe.schema import Execution
from marin.record import outputs
from marin.record.events import write
from marin.record.root import Root
from marin.runners.jobs import error_of
from marin.runners.reservation import reservation
from marin.runners.workers import warm_workers
from marin.work.cached import results_of

WITHOUT = "marin/plugins/unlearning/attribution/leaving_out.py"
"""The file in which a training without documents begins."""
HELD_OUT = "validation"
"""The set that is measured where none is named: the run's own held-out text."""


@dataclass(frozen=True)
class Row:
    """``index``: of the event; None where nothing is recorded. ``other``: fields that differ from what was recorded before.
    ``failure``: why there is no ``body``."""

    group: Group
    body: AttributionMeasured | None
    index: int | None
    executed: int
    other: tuple[str, ...] = ()
    failure: str = ""


def read_sets(run: Run, store: Store, files: Sequence[Path]) -> dict[str, bytes]:
    """What is measured, by name, as JSON lines with a ``text`` each: the run's held-out documents, and each of ``files``
    under its name.

    Raises:
        UsageError: a file cannot be read, or two have one name.
    """
    with store.open_file(run.output("corpus").artifact, VALIDATION) as lines:
        texts = [json.loads(line)["text"] for line in lines]
    found = {HELD_OUT: b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts if text)}
    for file in files:
        if file.stem in found:
            raise UsageError("two sets of one name", where=f"--on {file}", expected="another name", found=file.stem)
        found[file.stem] = file.read_bytes()
    return found


@dataclass(frozen=True)
class MeasurementRequest:
    """``sets``: as :func:`read_sets` gives them. ``keep_tokenizer``: that of the run is taken as given. ``again``: what is
    recorded is executed too, and compared. ``record``: new results are."""

    sets: Mapping[str, bytes]
    workers: int = 1
    execution: Execution = field(default_factory=Execution)
    keep_tokenizer: bool = False
    again: bool = False
    record: bool = True


def measure(
    root: Root,
    run: Run,
    groups: Sequence[Group],
    asked: MeasurementRequest,
    done: Callable[[int], None] = lambda count: None,
) -> Iterator[Row]:
    """A row for each of ``groups``, in the order in which they are executed: by where their training begins.

    Raises:
        Unsupported: this machine does not compute the bits of the run's arithmetic contract.
    """
    store = root.store()
    digests = {name: store.put_bytes(data).digest for name, data in asked.sets.items()}
    history = root.history()
    known = results_of(
        history,
        AttributionMeasured,
        lambda body: tuple(body.documents),
        partial(_fits, digests, asked),
        stream=attribution_stream(run.run),
    )
    todo, again = [], asked.again or not root.is_own()  # what another signed is only claimed
    for group in sorted(groups, key=lambda group: group.place.step):
        found = known.get(group.documents)
        if found is not None and not again and history.written.is_mine(found.index):
            yield Row(group, found.body, found.index, 0)
        else:
            todo.append(group)
    if not todo:
        return
    saved = {fact.body.state: fact.body.artifact for fact in run.checkpoints}
    tasks = [
        Task(one.documents, one.spans, one.place.step, one.place.state, saved.get(one.place.state)) for one in todo
    ]
    with TemporaryDirectory(prefix="marin-attribute-") as base:
        setup = _setup(root, run, Path(base), digests, todo, asked)
        each = reservation(PIPELINE.step("train"), run.recipe, asked.execution)
        with WORKER.run(warm_workers(asked.workers, each).run, setup, tasks) as results:
            for count, (group, result) in enumerate(zip(todo, results, strict=True), 1):
                yield _measured_row(root, run, group, result, digests, known, asked)
                done(count)


def _fits(digests: Mapping[str, str], asked: MeasurementRequest, body: AttributionMeasured) -> bool:
    """Whether it measured the same texts, and looked at the tokenizer if that is wanted."""
    same = {name: one.data for name, one in body.sets.items()} == dict(digests)
    return same and (asked.keep_tokenizer or body.same_tokenizer is not None)


def _setup(
    root: Root, run: Run, base: Path, digests: dict[str, str], todo: Sequence[Group], asked: MeasurementRequest
) -> LeavingOutSetup:
    folders = {name: str(base / name) for name in ("corpus", "tokens", "tokenizer")}
    for name, folder in folders.items():
        outputs.checkout(root.store(), run.output(name), Path(folder), kind=outputs.KINDS[name])
    leaving = next((one for group in todo for one in group.documents), "0" * 64)
    return LeavingOutSetup(
        root=root.absolute,
        recipe=run.started.body.recipe,
        leaving=leaving,
        sets=digests,
        devices=asked.execution.devices,
        keep_tokenizer=asked.keep_tokenizer,
        **folders,
    )


def _measured_row(
    root: Root,
    run: Run,
    group: Group,
    answer: TrainedWithout,
    digests: Mapping[str, str],
    known: Mapping[tuple[str, ...], Fact[AttributionMeasured]],
    asked: MeasurementRequest,
) -> Row:
    executed = run.recipe.last_step - group.place.step
    if answer.error is not None:
        return Row(group, None, None, executed, failure=str(error_of(answer.error)))
    store = root.store()
    sets = {
        name: MeasuredLoss(
            data=digest, sums=store.put_bytes(encode_sums(answer.sums[name])).digest, loss=answer.losses[name]
        )
        for name, digest in digests.items()
    }
    body = AttributionMeasured(
        about=run.run,
        documents=list(group.documents),
        first_use=group.first_use,
        step=group.place.step,
        state=group.place.state,
        end_state=answer.end_state,
        same_tokenizer=answer.same_tokenizer,
        sets=sets,
        code=deciding_digest((*PIPELINE.step("train").code(run.recipe), WITHOUT, *CODE), run.recipe),
        lock=lock_digest(code_folder()),
    )
    before = known.get(group.documents)
    if before is not None:
        return Row(group, body, before.index, executed, tuple(_differing(before.body, body)))
    if not asked.record:
        return Row(group, body, None, executed)
    (receipt,) = root.append([Draft(ATTRIBUTION_MEASURED, attribution_stream(run.run), write(body))])
    return Row(group, body, receipt.index, executed)


def _differing(before: AttributionMeasured, after: AttributionMeasured) -> Iterator[str]:
    """What two measurements of one group disagree on; where the training went on from may be another state."""
    for name in ("first_use", "end_state", "same_tokenizer"):
        found, made = getattr(before, name), getattr(after, name)
        if found != made and None not in (found, made):
            yield f"{name}: expected {found}, found {made}"
    for name, one in before.sets.items():
        if one != after.sets[name]:
            yield f"losses of {name}: expected {one.loss}, found {after.sets[name].loss}"
