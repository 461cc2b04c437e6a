"""A run that records what a training loop of the user's own tells it.

    with marin.start_run("mine", recipe={"lr": 3e-4}) as run:
        for step, batch in enumerate(batches):
            run.log(step, loss=train(batch), batch=batch)
            if step % 100 == 99:
                run.state(model.state_dict())
        run.save("model", "out/model")

What it records is evidence of what was said, when, in which order, with which bytes. It is not replayable by itself: the
loop is code that the ledger does not know. `marin verify RUN --by COMMAND` executes the user's command twice and compares
each loss, batch and state (:mod:`marin.verify.judges.loop`).
"""

from __future__ import annotations

import logging
import math
import operator
import os
import shlex
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from ledger import Draft, LedgerError, StateManifest, canonical_digest, describe_state, digest_bytes
from marin.errors import UsageError
from marin.history.projection.text import LOSS
from marin.history.run import new_id
from marin.loops.tensors import arrays, batch_digest
from marin.provenance import environment
from marin.provenance.code import Provenance, code_folder, lock_digest, provenance
from marin.record import events
from marin.record.events import LOOP, HexFloat, LoopSegment, Output
from marin.record.meter import SPEED, Meter
from marin.record.root import Root, open_root
from marin.work.recorded import Attempt, StoredResult

logger = logging.getLogger(__name__)

EVERY = 100
"""Train steps after which a segment is recorded although no state was told: what a crash can lose."""
RESERVED = frozenset({*events.STEPS, LOOP})
"""Names of steps, under which a loop saves nothing."""


@dataclass
class _Waiting:
    """What was logged and is in no event yet: train steps from ``start`` on. ``None``: the next train step is the first."""

    start: int | None
    losses: list[HexFloat] = field(default_factory=list)
    batches: list[str] = field(default_factory=list)
    series: dict[str, tuple[list[int], list[HexFloat]]] = field(default_factory=dict)

    @property
    def end(self) -> int | None:
        return None if self.start is None else self.start + len(self.losses)


class Loop(AbstractContextManager["Loop"]):
    """One recorded run. Made by :func:`start_run`; it ends with its ``with`` block, or by :meth:`finish`.

    Nothing is recorded twice: train steps are numbered from 0 (or from the first that is logged), one after the other.
    """

    def __init__(self, root: Root, name: str, recipe: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        self.id = new_id()
        self._root, self._ended, self._began = root, False, time.monotonic()
        self._outputs: dict[str, Output] = {}
        self._metrics: dict[str, tuple[int, float]] = {}
        """By name: the greatest step that it was logged for, and what was logged of it last."""
        self._losses: list[tuple[int, HexFloat]] = []
        self._waiting: _Waiting | None = None
        self._meter = Meter()
        told = {**recipe, LOOP: {"name": name, "tags": dict(tags), "command": shlex.join(_command())}}
        source = _provenance()
        self._identity = canonical_digest({"recipe": _canonical(told), "code": source.tree, "run": self.id})
        self._recipe = canonical_digest(_canonical(told))
        if source.diff:
            root.store().put_bytes(source.diff)
        lock = lock_digest(code_folder())
        began = events.RunStarted(
            run=self.id,
            pipeline=LOOP,
            plan=canonical_digest([self._recipe, source.tree]),
            recipe_digest=self._recipe,
            recipe=_canonical(told),
            code=source.describe(),
            environment=environment.describe(lock),
        )
        self._attempt = Attempt(self.id, LOOP, self._identity)
        started = self._attempt.started(_canonical(dict(recipe)), source.tree, config_digest=self._recipe)
        root.append([self._attempt.draft(events.RUN_STARTED, began), started])

    def log(self, step: int, /, loss: float | None = None, batch: Any = None, **metrics: float) -> None:
        """What came of one train step.

        Args:
            step: its number, a whole one of Python, NumPy or jax; each is one above the last.
            loss: its loss, anything that ``float`` takes; recorded exactly.
            batch: what it saw: bytes, text, an array or several by name. Its digest is recorded.
            metrics: other numbers of the step; measurements, which are compared with nothing.

        Raises:
            UsageError: the run has ended, or the step is not the next, or no whole number.
        """
        self.tell(step, loss, batch, metrics)

    def tell(self, step: int, loss: float | None, batch: Any, metrics: Mapping[str, float]) -> None:
        """The same, with metrics of any name: another program's may be called ``batch``.

        Raises:
            UsageError: as :meth:`log`.
        """
        self._check_open()
        step = _step_number(step)
        if LOSS in metrics:
            raise UsageError(
                "a metric of the loss's own name",
                where=f"run {self.id}",
                expected="log(step, loss=...), which curves show under this name",
                found=LOSS,
                cure="leave it out, or give it another name",
            )
        numbers = {name: _hex(number, name) for name, number in metrics.items()}  # before anything is taken in
        if loss is not None:
            value, seen = _hex(loss, "loss"), "" if batch is None else batch_digest(batch)
            waiting = self._waiting or self._next()
            if waiting.start is None:
                waiting.start = step
            if step != waiting.end:
                raise UsageError(
                    "a train step out of order",
                    where=f"run {self.id}",
                    expected=f"train step {waiting.end}",
                    found=str(step),
                    cure="log each train step once, one after the other; a loop that goes back starts a new run",
                )
            if len(waiting.losses) >= EVERY:  # now, so that the state after this very step can still be told
                self._flush(None)
                waiting = _Waiting(step)
            self._waiting = waiting
            waiting.losses.append(value)
            waiting.batches.append(seen)
            self._losses.append((step, value))
        for name, value in numbers.items():
            self._waiting = self._waiting or self._next()
            steps, values = self._waiting.series.setdefault(name, ([], []))
            values.append(value)
            steps.append(step)
            if step >= self._metrics.get(name, (step,))[0]:
                self._metrics[name] = step, float.fromhex(value)

    def __call__(self, step: int, loss: float, batch: Any = None, state: Any = None) -> None:
        """The run as a callback: a train step, and the state after it where there is one."""
        self.log(step, loss, batch)
        if state is not None:
            self.state(state)

    @property
    def pending(self) -> bool:
        """Whether a train step was logged since the last recorded segment, so that a state can be told."""
        return self._waiting is not None and bool(self._waiting.losses)

    def state(self, state: Any) -> str:
        """The state after the last train step that was logged: its tensors, by :func:`marin.loops.tensors.arrays`. Returns
        its digest; the list of tensors is stored, the tensors are not (:meth:`save` stores files).

        Raises:
            UsageError: the run has ended, no train step was logged since the last state, or there are no tensors.
        """
        self._check_open()
        if not self.pending:
            raise UsageError(
                "a state after no train step",
                where=f"run {self.id}",
                expected="log(step, loss=...) since the last recorded segment",
                found="none",
                cure=f"log the step first; a segment is recorded after {EVERY} steps without a state",
            )
        manifest = describe_state(arrays(state))
        self._flush(manifest)
        return manifest.digest

    def save(self, name: str, path: str | os.PathLike[str]) -> str:
        """Keep a file or a folder in the store as an output of the run. Returns its digest.

        Raises:
            UsageError: the run has ended, or the name is taken.
            LedgerError: it cannot be read.
        """
        self._check_open()
        if name in RESERVED or name in self._outputs or not name or "/" in name:
            raise UsageError(
                "not a name for an output",
                where=f"run {self.id}",
                expected="one that the run does not have yet, without slashes, and no name of a pipeline's step",
                found=name,
                cure="choose another",
            )
        file = Path(path)
        store = self._root.store()
        made = store.put_tree(file) if file.is_dir() else store.put_file(file)
        self._output(name, Output(kind="files", digest=made.digest, size=made.size, artifact=made.digest), {})
        return made.digest

    def finish(self) -> None:
        """The run is complete. Nothing happens the second time."""
        if self._ended:
            return
        self._flush(None)
        rows = "".join(f"{step},{float.fromhex(loss)!r}\n" for step, loss in self._losses)
        table = self._root.store().put_bytes(f"step,loss\n{rows}".encode())
        last_of = {name: value for name, (_, value) in self._metrics.items() if not name.startswith(events.MACHINE)}
        numbers = {name: value for name, value in last_of.items() if name != "loss" and math.isfinite(value)}
        if self._losses and math.isfinite(last := float.fromhex(self._losses[-1][1])):
            numbers["loss_last"] = last
        made = Output(kind="losses", digest=table.digest, size=table.size, artifact=table.digest)
        self._output(LOOP, made, numbers)
        metrics = {f"{LOOP}.{name}": value.hex() for name, value in numbers.items()}
        completed = events.RunCompleted(run=self.id, outputs=self._outputs, metrics=metrics)
        self._root.append([self._attempt.draft(events.RUN_COMPLETED, completed)])
        self._ended = True

    def fail(self, error: BaseException | str) -> None:
        """The loop stopped with an error; the run is ``failed``."""
        if self._ended:
            return
        self._flush(None)
        said = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
        line = " ".join(said.split())[:2000]
        self._root.append([self._attempt.failed(line)])
        self._ended = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.finish()
            return
        with suppress(LedgerError):  # what stopped the loop is what its user must see
            self.fail(error)

    def __repr__(self) -> str:
        return f"<recorded run {self.id}: {len(self._losses)} train steps>"

    def _next(self) -> _Waiting:
        """What waits after the last recorded segment: nothing yet."""
        return _Waiting(self._losses[-1][0] + 1 if self._losses else None)

    def _flush(self, manifest: StateManifest | None) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        batch: list[Draft] = []
        if waiting.start is not None and waiting.losses:
            stored = "" if manifest is None else self._root.store().put_bytes(manifest.encode()).digest
            segment = LoopSegment(
                run=self.id,
                start=waiting.start,
                end=waiting.start + len(waiting.losses),
                losses=waiting.losses,
                batches=waiting.batches,
                state="" if manifest is None else manifest.digest,
                manifest=stored,
            )
            batch.append(self._attempt.draft(events.LOOP_SEGMENT, segment))
            for name, value in self._meter.lap(len(waiting.losses), tokens=0).items():
                if name != SPEED:  # how many tokens a step has, the loop alone knows
                    waiting.series.setdefault(name, ([segment.end - 1], [value.hex()]))
        if waiting.series:
            series = [
                events.Series(key=key, steps=told, values=values) for key, (told, values) in waiting.series.items()
            ]
            measured = events.MetricsRecorded(run=self.id, step=LOOP, series=series)
            batch.append(self._attempt.draft(events.METRICS_RECORDED, measured))
        if batch:
            self._root.append(batch)

    def _output(self, name: str, output: Output, metrics: Mapping[str, float]) -> None:
        identity = self._identity if name == LOOP else canonical_digest([self._identity, name])
        made = StoredResult(output, metrics, seconds=round(time.monotonic() - self._began, 3))
        self._root.append([Attempt(self.id, name, identity).completed(made)])
        self._outputs[name] = output

    def _check_open(self) -> None:
        if self._ended:
            raise UsageError(
                "the run has ended",
                where=f"run {self.id}",
                expected="marin.start_run() for each run",
                found="a call after its end",
                cure="start another run",
            )


def start_run(
    name: str = "",
    *,
    recipe: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Loop:
    """Begin a run that a loop of one's own reports to.

    Args:
        name: what lists show.
        recipe: whatever decides the loop's bits, as JSON; recorded, and not checked. Seeds belong in it.
        tags: short texts by name.
        root: as ``marin.open``; by default what MARIN_ROOT names, or ``.marin`` here or above.

    Raises:
        Unavailable: there is no root (`marin init` makes one), or its key is not here.
        UsageError: the recipe is not JSON.
    """
    opened = open_root(None if root is None else os.fspath(root))
    opened.check_writable()
    run = Loop(opened, name, dict(recipe or {}), dict(tags or {}))
    logger.info("run %s is recorded in %s", run.id, opened.location)
    return run


def _canonical(value: Any) -> Any:
    """JSON as the ledger takes it: numbers that are not small integers as text."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if abs(value) < 1 << 53 else str(value)
        case float():
            return value.hex() if math.isfinite(value) else str(value)
        case Mapping():
            named = {str(key): _canonical(item) for key, item in value.items()}
            if len(named) < len(value):
                raise UsageError(
                    "two keys of a recipe that are one as texts",
                    where="recipe",
                    expected="keys that JSON can tell apart",
                    found=", ".join(sorted(repr(key) for key in value))[:200],
                    cure="name one of them otherwise",
                )
            return named
        case list() | tuple():
            return [_canonical(item) for item in value]
    raise UsageError(
        "not a recipe",
        where="recipe",
        expected="JSON: mappings, lists, text, numbers",
        found=type(value).__name__,
        cure="name what decides the bits, by plain values",
    )


def _step_number(step: Any) -> int:
    """As Python has it: what a loop counts with may be a NumPy integer, which no event takes."""
    try:
        return operator.index(step)
    except TypeError:
        raise UsageError(
            "not the number of a step",
            where="step",
            expected="a whole number",
            found=repr(step),
            cure="for example int(step)",
        ) from None


def _hex(value: Any, name: str) -> HexFloat:
    try:
        if isinstance(value, str | bytes):
            raise ValueError(value)
        return float(value).hex()
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            "not a number",
            where=name,
            expected="a Python number that float() takes, or an array of one element",
            found=type(value).__name__,
            cure="for example loss.item()",
        ) from None


def _command() -> list[str]:
    """How this process was started, as far as it knows; nothing in a notebook."""
    return [Path(sys.executable).name, *sys.argv] if sys.argv and sys.argv[0] else []


def _provenance() -> Provenance:
    """Where the code of the program lies: of its script, or of the working folder where it is a notebook or a console.
    Outside of Git the script alone is told: its folder may hold anything."""
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    folder = script.resolve().parent if script.is_file() else Path.cwd()
    if any((above / ".git").exists() for above in (folder, *folder.parents)):
        return provenance(folder)
    return Provenance(
        commit="", tree=digest_bytes(script.read_bytes() if script.is_file() else b""), dirty=False, diff=b""
    )
