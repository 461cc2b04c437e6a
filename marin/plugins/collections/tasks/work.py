"""What a worker does, a task at a time. Each task leaves a folder.

A folder appears under its name when all of it is written, so a worker that is killed leaves nothing that looks whole; who does
the task again writes the same bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from marin.execution.workspace import explained
from marin.plugins.collections.tasks.candidates import compare
from marin.plugins.collections.tasks.cutting import cut_paragraphs
from marin.plugins.collections.tasks.judging import Judge
from marin.plugins.collections.tasks.reading import read_slice
from marin.plugins.collections.tasks.task import Counted, Setup, Task
from marin.plugins.collections.tasks.training import train_model
from marin.plugins.collections.tasks.writing import write_documents
from marin.work.placed import Worker


class Tasks:
    """Does what a collection consists of, in a worker."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._judge = Judge(setup)
        self._kinds: Mapping[str, Callable[[Task, Path], Counted]] = {
            "read": lambda task, out: read_slice(setup, task, out),
            "train": lambda task, out: train_model(setup, task, out),
            "judge": self._judge,
            "cut": lambda task, out: cut_paragraphs(setup, task, out),
            "near": lambda task, out: compare(setup, task, out),
            "write": lambda task, out: write_documents(setup, task, out),
        }

    def __call__(self, task: Task) -> Counted:
        """What came of one task."""
        target = Path(self._setup.folder) / task.kind / task.name
        partial = target.with_name(f"{task.name}.{os.getpid()}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            answer = self._kinds[task.kind](task, partial)
            shutil.rmtree(target, ignore_errors=True)
            partial.rename(target)
        except (OSError, MemoryError) as error:
            raise explained(f"collection, {task.kind} {task.name}", error) from error
        return answer


WORKER = Worker(f"{__name__}:WORKER", Setup, Task, Counted, Tasks)
