"""Processes that draw completions beside the one that trains: on this machine, or on a Ray.

An update is drawn in pieces, of some of its rows each, by the state that the recipe says. A piece is a function of that state, of
prompts and of keys: which process draws it, in which order, and how often it was begun, decides no bit. A process that dies is
begun again by its place; where all are lost for good, the one that trains draws.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ledger import LedgerError, Unavailable
from marin.process.arithmetic import APPLIED, apply, check_device, settings
from marin.process.cache import compilation_cache
from marin.recipe.schema import Execution, Recipe, digest, from_plain, plain
from marin.record.events import Json
from marin.runners.places import place_of
from marin.training.runtime.turn import compiling
from marin.work.placed import Worker

if TYPE_CHECKING:
    from marin.plugins.rl.drawing import Looked, Tokens

log = logging.getLogger(__name__)
PATIENCE_SECONDS = 20.0
"""How long a process may take to end what it draws, once nobody wants it any more."""


class SamplerSetup(msgspec.Struct, frozen=True):
    """What a process needs for all pieces."""

    recipe: Json
    vocab_size: int


class Piece(msgspec.Struct, frozen=True):
    """Rows of an update: the bytes of each parameter, prompts, and a key (uint32[2], little-endian) for each. Without prompts it
    is a pause."""

    params: list[bytes] = []
    prompts: list[tuple[int, ...]] = []
    keys: bytes = b""


class Drawn(msgspec.Struct, frozen=True):
    """Completions, and what the pass says of them: int32, float32 and float32, little-endian."""

    completions: list[tuple[int, ...]] = []
    passed: tuple[bytes, bytes, bytes] = (b"", b"", b"")


class Sampler:
    """Draws pieces, on one device.

    Raises:
        Unsupported: this machine does not give the contract's known answer.
    """

    def __init__(self, setup: SamplerSetup) -> None:
        prepare(setup)
        import jax

        from marin.plugins.rl.drawing import Drawing
        from marin.training.optimizers.rule import optimizer
        from marin.training.runtime import canary
        from marin.training.runtime.compilation import use_compilation_cache
        from marin.training.state import state_like
        from marin.training.step.contract import mesh_of
        from marin.training.step.slices import Layout

        recipe: Recipe = from_plain(setup.recipe, where="recipe of the run")
        use_compilation_cache(compilation_cache())
        # Its machine may be another than the one that trains.
        check_device(recipe.arithmetic, jax.devices()[0].device_kind)
        canary.check(recipe.arithmetic)
        self._layout = Layout(state_like(recipe, setup.vocab_size), optimizer(recipe), 1)
        self._drawing, self._name = Drawing(recipe, self._layout, mesh_of(1)), digest(recipe).removeprefix("sha256:")
        self._compiled = False

    def __call__(self, piece: Piece) -> Drawn:
        """What is drawn."""
        import jax

        if not piece.prompts:
            return Drawn()
        likes, tree = jax.tree.flatten(self._layout.named)
        pairs = zip(piece.params, likes, strict=True)
        arrays = [jax.device_put(np.frombuffer(data, like.dtype).reshape(like.shape)) for data, like in pairs]
        given = jax.tree.unflatten(tree, arrays), piece.prompts, np.frombuffer(piece.keys, "<u4").reshape(-1, 2)
        with ExitStack() as turn:
            if not self._compiled:  # by one process; the others find it in the cache
                turn.enter_context(compiling(f"{self._name}-sampler"))
            completions, passed = self._drawing.drawn(*given)
        self._compiled = True
        return Drawn(completions, (passed.drawn.tobytes(), passed.logprobs.tobytes(), passed.entropy.tobytes()))


def prepare(setup: SamplerSetup) -> None:
    """Import what a process draws with; no device is looked for."""
    apply(
        from_plain(setup.recipe, where="recipe of the run").arithmetic, Execution()
    )  # before jax starts in this process
    import marin.plugins.rl.drawing  # noqa: F401


WORKER = Worker(f"{__name__}:WORKER", SamplerSetup, Piece, Drawn, Sampler, prepare)


class _Job:
    def __init__(self, piece: Piece) -> None:
        self.piece, self.answer = piece, Future[Drawn]()


class _Ended(Exception):
    """No further piece comes."""


class _Handed(Sequence[Piece]):
    """What one process is asked for: pieces as they are wanted, and a pause after each, for a runner hands a task out before it
    gives the answer to the one before."""

    def __init__(self, waiting: SimpleQueue[_Job | None], count: int) -> None:
        self.job: _Job | None = None
        self._waiting, self._count, self._number = waiting, 2 * count, -1

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Piece:  # type: ignore[override]
        if number % 2:
            return Piece()
        if number != self._number:  # of a process that died, the one that begins in its place gets the same piece
            self.job, self._number = self._waiting.get(), number
        if self.job is None:
            raise _Ended
        return self.job.piece


class Samplers:
    """As many processes as ``execution`` wants, at its place; begun when the first piece is wanted."""

    def __init__(self, recipe: Recipe, vocab_size: int, execution: Execution) -> None:
        self._recipe, self._vocab_size, self._execution = recipe, vocab_size, execution
        self._waiting: SimpleQueue[_Job | None] = SimpleQueue()
        self._wanted: dict[int, list[Future[Drawn]]] = {}
        self._guard, self._stack, self._alive = Lock(), ExitStack(), 0
        self._threads: list[Thread] = []

    def ask(self, update: int, arrays: Any, prompts: Tokens, keys: np.ndarray) -> None:
        """Have the completions of ``update`` drawn, by the state with these parameters."""
        import jax

        size = self._recipe.arithmetic.microbatch_size
        params = [np.asarray(x).tobytes() for x in jax.tree.leaves(arrays)]
        spans = [slice(at, at + size) for at in range(0, len(prompts), size)]
        jobs = [_Job(Piece(params, prompts[rows], np.asarray(keys[rows], "<u4").tobytes())) for rows in spans]
        self._wanted[update] = [job.answer for job in jobs]
        if not self._threads:
            self._begin(len(jobs))
        for job in jobs:
            self._waiting.put(job)
        self._without_any()

    def drawn(self, update: int) -> tuple[Tokens, Looked] | None:
        """What they drew; None where nobody is left to draw."""
        from marin.plugins.rl.drawing import Looked

        wanted = self._wanted.pop(update, None)
        if wanted is None:
            return None
        try:
            parts = [answer.result() for answer in wanted]
        except LedgerError as error:
            log.warning("the process that trains draws by itself: %s", error)
            return None
        assert self._recipe.objective is not None
        count = self._recipe.objective.max_completion_length
        joined = [b"".join(part.passed[place] for part in parts) for place in range(3)]
        kinds = zip(joined, ("<i4", "<f4", "<f4"), strict=True)
        passed = Looked(*(np.frombuffer(data, kind).reshape(-1, count) for data, kind in kinds))
        return [new for part in parts for new in part.completions], passed

    def close(self) -> None:
        """End them."""
        with self._guard, suppress(Empty):
            self._alive = 0
            while True:
                self._waiting.get_nowait()
        for _ in self._threads:
            self._waiting.put(None)
        try:
            for thread in self._threads:
                thread.join(PATIENCE_SECONDS)
        finally:
            self._stack.close()
            self._threads, self._wanted, self._waiting = [], {}, SimpleQueue()

    def _begin(self, pieces: int) -> None:
        """Each process has a runner of its own, whose tasks go to it alone: so one that is slow keeps no other waiting.

        Raises:
            Unavailable: the machine does not start them.
        """
        execution, recipe = self._execution, self._recipe
        objective, place = recipe.objective, place_of(execution.runner)
        assert objective is not None
        variables = settings(recipe.arithmetic, Execution())
        variables |= {APPLIED: variables["XLA_FLAGS"]}
        setup, count = SamplerSetup(_json(plain(recipe)), self._vocab_size), execution.samplers
        updates = recipe.trainer.num_steps // objective.num_iterations
        threads: list[Thread] = []
        try:
            if execution.runner != "local":
                self._stack.enter_context(place.held(execution.address, cpus=count))
            for number in range(count):
                handed = _Handed(self._waiting, (updates + 1) * pieces)
                runner = place.workers(1, variables=variables)
                answers = self._stack.enter_context(WORKER.run(runner.run, setup, handed))
                threads.append(Thread(target=self._work, args=(answers, handed), name=f"sampler-{number}", daemon=True))
        except OSError as error:
            raise Unavailable(
                "the processes that draw completions do not start",
                where="--samplers",
                found=str(error),
                cure="ask for fewer, or for none",
            ) from error
        self._threads, self._alive = threads, count  # only now: close() joins each of them
        for thread in threads:
            thread.start()

    def _work(self, answers: Iterator[Drawn], handed: _Handed) -> None:
        try:
            while True:
                answer = next(answers)
                assert handed.job is not None, "an answer is one to a piece"
                handed.job.answer.set_result(answer)
                next(answers)
        except _Ended:
            return
        except Exception as error:  # whatever befalls a process or its place
            with self._guard:
                if self._alive == 0:  # nobody wants more
                    return
                self._alive -= 1
            log.warning("a process that draws completions is lost: %s", error)
            if handed.job is not None and not handed.job.answer.done():
                self._waiting.put(handed.job)
            self._without_any()

    def _without_any(self) -> None:
        """Where nobody is left, say so of every piece that waits."""
        with self._guard, suppress(Empty):
            while self._alive == 0:
                job = self._waiting.get_nowait()
                if job is not None:
                    job.answer.set_exception(
                        Unavailable("no process is left that draws completions", where="--samplers")
                    )


def _json(value: Any) -> Json:
    assert isinstance(value, dict)
    return value
