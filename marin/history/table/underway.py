"""How far a run has come while it is under way: train step, losses, speed, time left, and when it gave its last sign.

All of it is read from events. A sign is any event of the run, and a lease that its executor renewed; of an executor that gave
none for the term of its lease it is said since when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median

from ledger import parse_time
from marin.history.names import section
from marin.history.run import Run
from marin.history.runs import History, stream_of
from marin.history.table.evaluations import recorded_evaluations
from marin.history.table.machine import SPEED, laps
from marin.kinds.families.measured import EvaluationMeasured
from marin.kinds.known import type_of
from marin.recipe.units import human_size, human_time
from marin.record.events import LEASES, LOOP, LeaseRenewed, LeaseTaken, read

TRAINING = ("train", LOOP)
"""The steps that execute train steps: Marin's, and a loop of a user's own."""
TERM = timedelta(seconds=120)
"""How long a lease outlives its executor's last sign where nothing else is said (:mod:`marin.execution.leases.lease`)."""
GPU_BUSY = "_utilization_percentage"
"""How the names of GPUs' shares of time end (:mod:`marin.provenance.gpus`)."""
QUIET = timedelta(minutes=10)
"""After so long without a sign a list says since when, where no lease tells more."""


@dataclass(frozen=True)
class Underway:
    """``step``: the step that is executed, "" between two; ``done`` train steps of ``total`` (0 where that is not said);
    ``train_loss`` of the newest train step; ``held_out``: what a held-out set measured while it trained, and after how many train
    steps; ``left``: seconds of training, by the speed so far; ``sign``: when it gave the last one, and ``silent`` whether
    that is too long ago."""

    step: str
    done: int
    total: int
    train_loss: float | None
    held_out: tuple[str, float, int] | None
    speed: float | None
    left: float | None
    machine: Mapping[str, float]
    sign: datetime
    silent: bool

    @property
    def line(self) -> str:
        """The same in a few words, for a list."""
        if self.silent:
            return f"no sign since {self.sign:%m-%d %H:%M}"
        parts = [self.step or "open"]
        if self.step in TRAINING and (self.total or self.done):
            parts[0] += f" {self.done} of {self.total}" if self.total else f" {self.done}"
        if self.left is not None:
            parts.append(f"{human_time(self.left)} left")
        return ", ".join(parts)

    def sign_in_words(self, now: datetime) -> str:
        """When it gave its last sign."""
        ago = human_time(max(0.0, (now - self.sign).total_seconds()))
        moment = f"{self.sign:%Y-%m-%d %H:%M:%S} UTC, {ago} ago"
        return f"no sign since {moment}" if self.silent else f"{self.step or 'between two steps'}, last sign {moment}"

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The rest line by line, for one run."""
        rows = []
        if self.done or (self.total and self.step in TRAINING):
            rows.append(("train step", f"{self.done} of {self.total}" if self.total else str(self.done)))
        if self.train_loss is not None:
            rows.append(("train loss", f"{self.train_loss:.4f} so far"))
        if self.held_out is not None:
            name, loss, at = self.held_out
            rows.append(("loss", f"{loss:.4f} on {name}, after {at} train steps"))
        if self.speed is not None:
            rows.append(("speed", f"{self.speed:,.0f} tokens a second"))
        if self.left is not None and not self.silent:
            rows.append(("time left", f"{human_time(self.left)} of training"))
        if self.machine:
            rows.append(("machine", ", ".join(_in_words(self.machine))))
        return rows

    def as_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "step": self.step or None,
            "train_step": self.done,
            "train_steps": self.total or None,
            "train_loss": self.train_loss,
            "loss": None if self.held_out is None else dict(zip(("set", "loss", "after"), self.held_out, strict=True)),
            "tokens_per_second": self.speed,
            "seconds_left": self.left,
            "machine": dict(self.machine),
            "last_sign": self.sign.isoformat(),
            "silent": self.silent,
        }


def _in_words(machine: Mapping[str, float]) -> list[str]:
    said = []
    if (load := machine.get("cpu_utilization_percentage")) is not None:
        said.append(f"processor {load:.0f}%")
    if (memory := machine.get("peak_memory_megabytes")) is not None:
        said.append(f"memory {human_size(memory * 1e6)} at most")
    if gpus := [value for name, value in machine.items() if name.startswith("gpu_") and name.endswith(GPU_BUSY)]:
        said.append(f"{'GPU' if len(gpus) == 1 else f'{len(gpus)} GPUs'} {sum(gpus) / len(gpus):.0f}%")
    return said


def underway(history: History, run: Run, now: datetime) -> Underway | None:
    """How far an open run has come; None for one that has ended."""
    if run.status != "open":
        return None
    losses, measured = run.losses, laps(history, run.run)
    running = next((state for state in run.ordered_states() if state.state == "running"), None)
    total = section(run.started.body.recipe, "trainer").get("num_steps")
    total = total if isinstance(total, int) else 0
    done = max(losses, default=-1) + 1
    speeds, paces = measured.get(SPEED), measured.get("seconds_per_step")
    pace = median(paces[1:] or paces) if paces else None
    sign, silent = _last_sign(history, run, running.identity if running is not None else "", now)
    step = running.step if running is not None else ""
    if pace is None and step == LOOP and done:
        pace = (sign - parse_time(run.started.time)).total_seconds() / done
    return Underway(
        step=step,
        done=done,
        total=total,
        train_loss=losses[done - 1] if losses else None,
        held_out=_held_out(history, run),
        speed=median(speeds[1:] or speeds) if speeds else None,
        left=max(0, total - done) * pace if step in TRAINING and total and pace is not None else None,
        machine={name: values[-1] for name, values in measured.items() if values and name != SPEED},
        sign=sign,
        silent=silent,
    )


def _held_out(history: History, run: Run) -> tuple[str, float, int] | None:
    found = None
    for body in recorded_evaluations(history, run.run):
        if isinstance(body, EvaluationMeasured):
            for name, one in body.sets.items():
                if "loss" in one.numbers and (found is None or body.step >= found[2]):
                    found = (name, float.fromhex(one.numbers["loss"]), body.step)
    return found


def _last_sign(history: History, run: Run, identity: str, now: datetime) -> tuple[datetime, bool]:
    """When the run gave its last sign, and whether nobody seems to be at work on it any more."""
    sign = max(
        (_moment(event.time) for _, event in history.events(stream=stream_of(run.run))),
        default=_moment(run.started.time),
    )
    if not identity:
        return (
            sign,
            now - sign > QUIET,
        )  # between two steps, or a loop of its user's own: nothing says how often it gives signs
    seen, term = _holder(history, identity)
    sign = sign if seen is None else max(sign, seen)
    return sign, now - sign > term


def _holder(history: History, identity: str) -> tuple[datetime | None, timedelta]:
    """When the executor that took the newest lease on a step gave its last sign, and its term."""
    seen: dict[str, tuple[datetime, timedelta]] = {}
    newest = ""
    for index, event in history.events(stream=LEASES):
        if event.type == type_of(LeaseTaken):
            taken = read(LeaseTaken, event.body, where=f"event {index}")
            seen[taken.executor] = (_moment(event.time), timedelta(milliseconds=taken.term))
            newest = taken.executor if identity in taken.steps else newest
        elif event.type == type_of(LeaseRenewed):
            renewed = read(LeaseRenewed, event.body, where=f"event {index}")
            if renewed.executor in seen:
                seen[renewed.executor] = (_moment(event.time), seen[renewed.executor][1])
    return seen.get(newest, (None, TERM))


def _moment(time: str) -> datetime:
    return parse_time(time).astimezone(UTC)
