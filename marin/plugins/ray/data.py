"""Tasks as rows of a Ray data set: Ray Data gives them to warm workers, replaces those that die, and hands on what is ready.

Tasks and answers are small; what they are about lies in files. Each result comes, and can be recorded, as soon as it is there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from ledger import LedgerError, Unavailable
from marin.plugins.ray.cluster import connect
from marin.plugins.ray.software import other_software_than, software
from marin.runners.jobs import error_of, parts_of
from marin.work.placed import Start


def execute_by_data(start: Start, setup: bytes, tasks: Sequence[bytes], workers: int) -> Iterator[tuple[int, bytes]]:
    """(number of the task, its answer), in any order. A task whose worker died is executed again by another one.

    Raises:
        LedgerError: what a task raised.
        Unavailable: there is no Ray, a worker has other software, or the work cannot go on.
    """
    with connect(None, cpus=max(workers, 2)) as ray:
        ray_data = import_data()
        context = ray_data.DataContext.get_current().copy()  # the program may have data sets of its own
        context.enable_progress_bars = context.execution_options.preserve_order = False
        context.max_errored_blocks = 0  # any other number leaves out tasks that failed, without a word
        rows = [{"number": number, "task": task} for number, task in enumerate(tasks)]
        with ray_data.DataContext.current(context):
            data = ray_data.from_items(rows, override_num_blocks=len(rows)).map(
                _Worker,
                fn_constructor_args=(start, setup, software()),
                compute=ray_data.ActorPoolStrategy(size=max(1, min(workers, len(tasks)))),
                num_cpus=1,
            )
        try:
            for row in data.iter_rows():
                if row["error"]:
                    raise error_of(row["error"])
                yield int(row["number"]), row["answer"]
        except ray.exceptions.RayError as error:
            raise Unavailable(
                "the workers cannot go on",
                where="Ray Data",
                found=" ".join(str(error).split())[:300],
                cure="run the same command again: it goes on from what is done",
            ) from error


def import_data() -> Any:
    """The module ``ray.data``, which says only what is wrong."""
    import ray.data

    for name in ("ray.data", "ray.data._internal.execution.streaming_executor"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return ray.data


class _Worker:
    """In a process of Ray's: the work, started once."""

    def __init__(self, start: Start, setup: bytes, expected: str) -> None:
        self._refusal = other_software_than(expected)
        self._work = start(setup) if self._refusal is None else None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row with the answer, or the parts of an error."""
        try:
            if self._refusal is not None:
                raise self._refusal
            assert self._work is not None, "it was started"
            return {"number": row["number"], "answer": self._work(row["task"]), "error": []}
        except LedgerError as error:
            return {"number": row["number"], "answer": b"", "error": parts_of(error)}
