"""A training step as a Ray Train job (``ray.train.v2.jax.JaxTrainer``) that survives what it runs on.

The driver starts the job and waits. When a worker, all workers, Ray's controller or the Ray itself dies, the death goes
to the ledger (``step.preempted``) and the job is launched again, on as many of the wanted processes as the machines
that are left can hold; it goes on from the last training checkpoint that the ledger names. Launches are bounded: after
``Execution.retries`` deaths in a row without a train step recorded in between, the step fails and says of what.

How many processes train, on which devices and after how many deaths decides no bit.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from ledger import Unavailable
from marin.errors import Interrupted, Paused, UsageError
from marin.execution import tracker
from marin.execution.step import StepResult, Task
from marin.history.runs import stream_of
from marin.plugins.ray.cluster import connect, logs_of
from marin.plugins.ray.deaths import describe_death
from marin.plugins.ray.software import software
from marin.plugins.ray.train_worker import WorkerFailed, WorkerResult, WorkerSetup, train_loop
from marin.plugins.ray.writer import start_writer, writer_name
from marin.process import arithmetic
from marin.process.interruption import Remembered
from marin.process.progress import bar
from marin.process.running import environment
from marin.recipe.schema import Execution, Recipe, plain
from marin.record.events import STEP_PREEMPTED, TRAIN_SEGMENT, StepPreempted, TrainSegment
from marin.record.root import open_root
from marin.runners.jobs import error_of

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
WAIT_FOR_MACHINES_SECONDS = 300.0
"""How long a job waits for machines before the launch counts as failed: autoscalers take minutes."""
_SETTINGS = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(WAIT_FOR_MACHINES_SECONDS),
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
}
"""Ray Train: no change of the working folder, patience for machines, no metrics, logs as they are."""


@dataclass(frozen=True)
class Shape:
    """How one launch is laid out: ``processes`` workers with ``each`` devices, in ``slices`` of a pod, and what Ray reserves
    for a worker."""

    processes: int
    each: int
    resources: Mapping[str, float]
    options: Mapping[str, Any] = field(default_factory=dict)
    slices: int = 1

    @property
    def devices(self) -> int:
        """All devices."""
        return self.processes * self.each


def shape_of(recipe: Recipe, execution: Execution, available: Mapping[str, float], *, again: bool = False) -> Shape:
    """The largest layout that ``available`` resources can hold, of those that the recipe's parts (:attr:`Recipe.parts`)
    divide over and that are not larger than wanted. TPUs are taken in whole slices: all that are wanted, which an
    autoscaler may have to bring; and when training was launched before (``again``) those that are left.

    Raises:
        UsageError: the wanted layout is impossible on any machine.
        Unavailable: nothing fits at present.
    """
    parts, each = recipe.parts, execution.local_devices
    if parts % execution.devices:
        exact = recipe.arithmetic.profile == "exact"
        name = "trainer.batch_size" if exact else "arithmetic.logical_shards"
        raise UsageError(
            "the batch does not divide over the devices" if exact else "logical shards do not divide over the devices",
            where="--devices",
            expected=f"a divisor of {name} ({parts})",
            found=str(execution.devices),
            cure=f"use a power of two up to {parts}",
        )
    resources: dict[str, float] = {"CPU": 1.0}
    options: dict[str, Any] = {}
    match recipe.arithmetic.profile:
        case "gpu":
            resources["GPU"] = float(each)
            options["use_gpu"] = True
        case "tpu":
            resources["TPU"] = float(each)
            options |= {"use_tpu": True, "topology": execution.topology or None}
        case _:
            pass
    if execution.accelerator_type:
        options["accelerator_type"] = execution.accelerator_type
    if recipe.arithmetic.profile == "tpu":
        return _of_slices(parts, execution, available.get("TPU", 0.0) if again else None, resources, options)
    fits = [
        count
        for count in range(execution.processes, 0, -1)
        if parts % (count * each) == 0
        and all(available.get(name, 0.0) >= count * amount for name, amount in resources.items())
    ]
    if not fits:
        raise Unavailable(
            "no machine has room for a training process",
            where="Ray cluster",
            expected=", ".join(f"{amount:g} {name}" for name, amount in resources.items()),
            found=", ".join(f"{available.get(name, 0.0):g} {name}" for name in resources),
            cure="add machines, or use fewer devices per process",
        )
    slices = next(count for count in range(execution.slices, 0, -1) if fits[0] * each % count == 0)
    return Shape(fits[0], each, resources, options, slices)


def _of_slices(
    parts: int, execution: Execution, chips: float | None, resources: Mapping[str, float], options: Mapping[str, Any]
) -> Shape:
    """Whole slices, which Ray reserves: a slice cannot be made smaller. ``chips``: that are left, if that counts."""
    wanted = execution.slices
    if execution.processes % wanted:
        raise UsageError(
            "processes do not divide over the slices",
            where="--slices",
            expected=f"a divisor of --processes ({execution.processes})",
            found=str(wanted),
            cure="every slice has as many hosts, each with a process",
        )
    hosts, each = execution.processes // wanted, execution.local_devices
    left = [
        count
        for count in range(wanted, 0, -1)
        if chips is not None and parts % (count * hosts * each) == 0 and count * hosts * each <= chips
    ]
    slices = left[0] if left else wanted
    return Shape(slices * hosts, each, resources, options, slices)


def scaling_config(shape: Shape) -> Any:
    """A layout in Ray's terms; for TPUs Ray checks it against what a slice of that kind is.

    Raises:
        UsageError: there is no such slice.
    """
    from ray.train import ScalingConfig

    try:
        return ScalingConfig(num_workers=shape.processes, resources_per_worker=dict(shape.resources), **shape.options)
    except ValueError as error:
        raise UsageError(
            "the layout does not fit the accelerators",
            where="--processes, --devices, --topology",
            expected="one process per host, whole slices",
            found=" ".join(str(error).split())[:300],
            cure="see docs/cluster.md: a 4x4 slice of v6e has 4 hosts with 4 chips each",
        ) from error


def train_on_ray(task: Task) -> StepResult:
    """Execute the training of ``task`` as a Ray Train job; its output lands in ``task.out``.

    Raises:
        LedgerError: what a worker refused, as it was; ``Unavailable`` when workers died too often.
    """
    return _Training(task).result()


class _Died(Exception):
    """A launch ended without a result. ``engine``: it is not sure that Ray still lives."""

    def __init__(self, reason: str, *, engine: bool) -> None:
        super().__init__(reason)
        self.engine = engine


class _Training:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._root = open_root(task.root)
        self._code = software()
        self._deaths: list[str] = []
        self._launch = 0
        self._stopping = False
        self._recorded = self._progress()

    def result(self) -> StepResult:
        """Launch until there is a result, or too many deaths in a row."""
        execution = self._task.execution
        made: bytes | None = None
        while made is None:
            try:
                with connect(execution.address, cpus=execution.processes) as ray:
                    made = self._on(ray)
            except _Died as death:
                log.debug("a new connection to Ray: %s", death)
        result = msgspec.json.decode(made, type=WorkerResult)
        self._task.out.rmdir()
        self._task.store.checkout(result.artifact, self._task.out)
        return result.result()

    def _on(self, ray: Any) -> bytes:
        """Launches on one Ray. Raises ``_Died`` when that Ray may be what died."""
        while True:
            if self._stopping:  # the workers died before they could save; the next call goes on
                raise Interrupted(
                    "training was asked to stop",
                    where=f"after train step {self._recorded - 1}",
                    found=self._deaths[-1] if self._deaths else "nothing recorded",
                    cure="run the same command again: it goes on from here",
                )
            self._launch += 1
            shape: Shape | None = None
            try:
                shape = shape_of(
                    self._task.recipe, self._task.execution, ray.cluster_resources(), again=self._launch > 1
                )
                return self._launched(ray, shape)
            except _Died as death:
                self._preempted(str(death), shape)
                if death.engine:
                    raise
            except Unavailable as error:  # no room for one process: machines may come back
                if self._launch == 1:
                    raise
                self._preempted(str(error), shape)
            except ray.exceptions.RayError as error:
                self._preempted(describe_death(error), shape)
                raise _Died(describe_death(error), engine=True) from error

    def _preempted(self, reason: str, shape: Shape | None) -> None:
        """Record a death; raises ``Unavailable`` when it was one too many."""
        recorded = self._progress()
        if recorded > self._recorded:
            self._deaths.clear()
            self._recorded = recorded
        self._deaths.append(reason)
        allowed = self._task.execution.retries * self._task.execution.slices
        again = len(self._deaths) <= allowed
        self._task.journal.record(
            STEP_PREEMPTED,
            StepPreempted(
                run=self._task.run,
                step="train",
                attempt=self._task.attempt,
                launch=self._launch,
                reason=reason[:2000],
                processes=shape.processes if shape else 0,
                devices=shape.devices if shape else 0,
                at=recorded,
                again=again,
            ),
        )
        if not again:
            told = "; ".join(f"{number}: {death}" for number, death in enumerate(self._deaths, 1))
            raise Unavailable(
                "training died again and again without getting further",
                where=f"after train step {recorded - 1}" if recorded else "before the first recorded train step",
                expected=f"at most {allowed} deaths in a row",
                found=told[:1500],
                cure="mend what it died of and run the same command again: it goes on from here",
            )
        log.warning("train: launch %d died (%s); going on from train step %d", self._launch, reason[:300], recorded)

    def _progress(self) -> int:
        """How far the ledger knows this run's training."""
        return max(
            (body.end for body in self._task.journal.history(TRAIN_SEGMENT) if isinstance(body, TrainSegment)),
            default=0,
        )

    def _launched(self, ray: Any, shape: Shape) -> bytes:
        """One launch to its end."""
        from ray.train import FailureConfig, RunConfig
        from ray.train.v2.api.exceptions import TrainingFailedError, WorkerGroupError
        from ray.train.v2.jax import JaxTrainer

        task = self._task
        execution = msgspec.structs.replace(
            task.execution, processes=shape.processes, devices=shape.devices, slices=shape.slices
        )
        writer = start_writer(ray, self._root, task.root)
        ray.get(writer.ask_to_stop.remote(stream_of(task.run), False))
        setup = WorkerSetup(
            run=task.run,
            root=task.root,
            recipe=_plain_recipe(task.recipe),
            execution=execution,
            inputs={name: (str(folder.resolve()), task.artifacts[name]) for name, folder in task.inputs.items()},
            node=ray.get_runtime_context().get_node_id(),
            scratch=str(task.work.resolve()),
            writer=writer_name(self._root),
            attempt=task.attempt,
            launch=self._launch,
            code=self._code,
        )
        variables = arithmetic.settings(task.recipe.arithmetic, execution)
        variables |= {
            arithmetic.APPLIED: variables["XLA_FLAGS"],
            "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
            **tracker.environment(),
        }
        log.info("train: launch %d, %d processes with %d devices each", self._launch, shape.processes, shape.each)
        with TemporaryDirectory(prefix="marin-train-", ignore_cleanup_errors=True) as folder, environment(_SETTINGS):
            never = FailureConfig(max_failures=0, max_preemption_failures=0, controller_failure_limit=0)
            trainer = JaxTrainer(
                train_loop,
                train_loop_config={"setup": msgspec.json.encode(setup)},
                scaling_config=scaling_config(shape),
                run_config=RunConfig(
                    name=f"{task.run}-{task.attempt}-{self._launch}",
                    storage_path=folder,
                    failure_config=never,
                    worker_runtime_env={"env_vars": variables},
                ),
            )
            try:
                ended = self._watched(ray, writer, trainer.fit)
            except WorkerGroupError as error:
                raise _reason_of(error.worker_failures, logs_of(ray), stopping=self._stopping) from error
            except (TrainingFailedError, ray.exceptions.RayError) as error:
                raise _Died(describe_death(error), engine=True) from error
        return bytes(ended.return_value)

    def _watched(self, ray: Any, writer: Any, fit: Callable[[], Any]) -> Any:
        """The result of ``fit``, executed in a thread: a signal reaches this one. Meanwhile, progress on stderr.

        Asked to stop, it tells the workers, through the writer, and waits until they have saved; asked again, it does
        not wait.
        """
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(fit())
            except BaseException as error:  # whatever it is, it belongs to the one that waits
                future.set_exception(error)

        threading.Thread(target=run, name="ray-train", daemon=True).start()
        recipe, stream = self._task.recipe, stream_of(self._task.run)
        done = max(0, self._recorded - recipe.first_step)
        with Remembered() as asked, bar("train", recipe.trainer.num_steps, done) as progress:
            while not wait([future], timeout=POLL_SECONDS).done:
                self._task.check()  # where another executor has the step, its workers end with this connection
                if asked.received is not None and not self._stopping:
                    log.info("train: asked to stop; the workers end after the train step that runs, and save")
                self._stopping = asked.received is not None
                try:
                    if self._stopping:
                        writer.ask_to_stop.remote(stream, True)
                    known = ray.get(writer.progress.remote(stream), timeout=5 * POLL_SECONDS)
                except ray.exceptions.RayError:  # it is being restarted, or busy: this is only a display
                    continue
                if known is not None:
                    progress(known[0] - recipe.first_step, known[1])
        return future.result()


def _reason_of(failures: Mapping[int, BaseException], logs: Path | None, *, stopping: bool) -> Exception:
    """What a refused step raised; or a death, with what became of each worker. SIGTERM to a worker (a machine that is
    to be taken away) is one, of which nothing was lost; unless all were to stop."""
    for error in failures.values():
        cause = getattr(error, "_base_exc", error)
        if isinstance(cause, WorkerFailed):
            refused = error_of(json.loads(str(cause)))
            if (
                isinstance(refused, Interrupted) and not isinstance(refused, Paused) and not stopping
            ):  # only its machine goes
                return _Died(
                    f"a worker was told to end ({refused.found}): the state {refused.where} was saved", engine=False
                )
            return refused
    told = "; ".join(f"worker {rank}: {describe_death(error, logs)}" for rank, error in sorted(failures.items()))
    return _Died(told[:1500], engine=False)


def _plain_recipe(recipe: Recipe) -> dict[str, Any]:
    value = plain(recipe)
    assert isinstance(value, dict)
    return value
