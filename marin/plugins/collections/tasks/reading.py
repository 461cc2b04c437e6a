"""The task ``read``: a slice of a source as rows, its pages as text, and what could not be read named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from marin.plugins.collections.document import Document, Problem, Step
from marin.plugins.collections.settings import divided, reader_of, step_settings
from marin.plugins.collections.sources import earlier, lines
from marin.plugins.collections.sources.finding import LocatedSource, Slice
from marin.plugins.collections.sources.origin import Origin
from marin.plugins.collections.tasks import task as tasks
from marin.plugins.collections.tasks.columns import DECISIONS, READ, ArrowWriter, ParquetWriter, decision_row, encode
from marin.plugins.collections.tasks.judging import judge


def read_slice(setup: tasks.Setup, task: tasks.Task, out: Path) -> tasks.Counted:
    """Read one slice; in strict mode up to the first problem."""
    steps = text_steps(setup)
    found = setup.sources[task.source]
    counts, problems, removed = Counter[str](), Counter[str](), Counter[str]()
    origin = Origin()
    rows, decided = ArrowWriter(out / tasks.READ_FILE, READ), ParquetWriter(out / tasks.DECIDED, DECISIONS)
    with (out / tasks.PROBLEMS).open("wb") as named:
        for item in documents(setup, found, found.slices[task.slice]):
            if isinstance(item, Problem):
                problems[item.reason] += 1
                line = {"source": item.source, "position": item.position, "reason": item.reason, "found": item.found}
                named.write(tasks.one_line(line))
                if setup.strict:
                    return tasks.Counted({}, stopped=tasks.problem_line(line))
                continue
            counts["read"] += 1
            origin.saw(item)
            document, decisions = judge(item, steps)
            for order, decision in enumerate(decisions):
                decided.write(decision_row(decision, order))
            reason = decisions[-1].reason if document is None else ""
            if reason:
                removed[reason] += 1
            text = "" if document is None else document.text
            row = (
                bytes.fromhex(item.id),
                item.metadata["position"],
                sha256(item.text.encode()).digest(),
                reason,
                text,
                item.added,
                item.created,
                encode(item.metadata),
            )
            rows.write(row, len(text))
    rows.close()
    decided.close()
    (out / tasks.ORIGIN).write_text(json.dumps(origin.said(), sort_keys=True), encoding="utf-8")
    return tasks.Counted(dict(counts), dict(problems), dict(removed))


def text_steps(setup: tasks.Setup) -> list[tuple[str, Step]]:
    """The steps that make text of what is read."""
    first, _ = divided(setup.settings.steps)
    return [(kind, made.make()) for kind, made in step_settings(first, where="settings", definition=setup.definition)]


def documents(setup: tasks.Setup, found: LocatedSource, part: Slice) -> Iterator[Document | Problem]:
    """What a slice of a file holds."""
    path, name = Path(found.path), found.source.name
    reader = reader_of(path.name)
    if reader is not None:
        found_here = reader(path, name)
        return earlier.without_markup(found_here) if setup.definition < 3 else found_here
    settings = setup.settings
    return lines.read(
        path,
        name,
        text_field=settings.text_field,
        fields=settings.metadata_fields,
        start=part.start,
        end=part.end,
        first=part.first,
        definition=setup.definition,
    )
