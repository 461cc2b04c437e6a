"""What tests of collections share: building one in a root of the test, and its columns."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from marin.plugins.collections import build as building
from marin.plugins.collections.making.execute import in_process
from marin.plugins.collections.queries.documents import Collection
from marin.record.root import Root, open_root
from marin.work.placed import Execute, Start


def by(execute: Execute, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of collections are executed so."""

    @contextmanager
    def executing(workers: int, address: str | None = None) -> Iterator[Execute]:
        yield execute

    monkeypatch.setattr(building, "executing", executing)


def shuffled(seed: int) -> Execute:
    """Tasks in one drawn order, results in another, some of them twice."""

    def execute(start: Start, setup: bytes, tasks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        draw = random.Random(seed)
        work = [start(setup) for _ in range(3)]
        order = list(range(len(tasks)))
        draw.shuffle(order)
        done = [(number, draw.choice(work)(tasks[number])) for number in order]
        draw.shuffle(done)
        yield from done

    return execute


class Killed(BaseException):
    """A process ended here."""


def dying(after: int) -> Execute:
    """Ends in the middle of task number ``after``, with what it had written left behind."""
    count = 0

    def execute(start: Start, setup: bytes, tasks: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        nonlocal count
        for item in in_process(start, setup, tasks):
            count += 1
            if count > after:
                raise Killed
            yield item

    return execute


def root_of(project: Path) -> Root:
    return open_root(str(project / ".marin"))


def rows(collection: Collection, folder: str) -> list[dict[str, Any]]:
    return [row for path in collection.files(folder) for row in collection.table(path).to_pylist()]


Build = Callable[..., building.BuildResult]
