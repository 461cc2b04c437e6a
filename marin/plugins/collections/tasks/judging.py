"""The task ``judge``: what was read of a slice goes through the steps of one document; digests and MinHash keys of what is left.

It writes no text again but those that a step changed, so a rule that is set otherwise costs no second reading of the sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from marin.data.documents import positions
from marin.data.lines.parsing import parsed
from marin.plugins.collections.comparing.contamination import STEP as CONTAMINATION
from marin.plugins.collections.comparing.contamination import Decontaminate, Evaluations, load_evaluations
from marin.plugins.collections.comparing.near import signatures
from marin.plugins.collections.document import Decision, Document, Step, encodable
from marin.plugins.collections.settings import Paragraphs, divided, step_settings
from marin.plugins.collections.steps.quality import Quality
from marin.plugins.collections.tasks import columns as arrow
from marin.plugins.collections.tasks import task as tasks

NOTHING = bytes(32)
"""In the place of the digest of a text that is removed."""


class Judge:
    """The steps of one document, made once in a worker, when they are wanted."""

    def __init__(self, setup: tasks.Setup) -> None:
        self._setup = setup
        self._steps: list[tuple[str, Step]] | None = None

    def steps(self) -> list[tuple[str, Step]]:
        """Those behind the ones that make text of pages, in order."""
        if self._steps is None:
            settings = self._setup.settings
            models = {examples.place: number for number, examples in enumerate(self._setup.examples)}
            first, rest = divided(settings.steps)
            self._steps = []
            for place, (kind, made) in enumerate(
                step_settings(rest, where="settings", definition=self._setup.definition), start=len(first)
            ):
                if isinstance(made, Quality):
                    self._steps.append((kind, made.open(tasks.model_file(Path(self._setup.folder), models[place]))))
                else:
                    self._steps.append((kind, made.make()))
            if self._setup.evaluations:
                files = [(Path(path), name) for path, name in self._setup.evaluations]
                fields = load_evaluations(files, self._setup.evaluation_fields)
                self._steps.append((CONTAMINATION, Decontaminate(Evaluations(fields, settings.contamination))))
        return self._steps

    def __call__(self, task: tasks.Task, out: Path) -> tasks.Counted:
        """Judge what was read under the same name."""
        setup = self._setup
        near, removed = setup.settings.near, Counter[str]()
        rows = arrow.ArrowWriter(out / tasks.JUDGED_FILE, arrow.judged_schema(near.bands if near is not None else 0))
        listed, decided = (
            arrow.ParquetWriter(out / tasks.LISTED, arrow.LISTING),
            arrow.ParquetWriter(out / tasks.DECIDED, arrow.DECISIONS),
        )
        source = setup.sources[task.source].source.name
        paragraphs = _Paragraphs(out, setup.settings.paragraphs)
        for batch in arrow.ArrowRows(Path(setup.folder) / "read" / task.name / tasks.READ_FILE).batches():
            digests, reasons, sizes, changed, texts = [], [], [], [], []
            for row in zip(*(column.to_pylist() for column in batch), strict=True):
                identity, position, as_read, reason, text, added, created, metadata = row
                document: Document | None = None
                url = encodable(str(_fields(metadata).get("url") or "")) if '"url"' in metadata else ""
                if not reason:
                    before = Document(identity.hex(), text, source, added, created, _fields(metadata))
                    document, decisions = judge(before, self.steps())
                    for order, decision in enumerate(decisions):
                        decided.write(arrow.decision_row(decision, order))
                    if document is None:
                        reason = decisions[-1].reason
                        removed[reason] += 1
                left = "" if document is None else document.text
                encoded = left.encode()
                digest = NOTHING if document is None else sha256(encoded).digest()
                paragraphs.saw(left)
                digests.append(digest)
                reasons.append(reason)
                sizes.append(len(encoded))
                changed.append(left if document is not None and left is not text else None)
                texts.append(left)
                said = "" if document is None else digest.hex()
                listed.write((identity.hex(), position, url, as_read.hex(), said, len(text.encode()), reason))
            places, draws = np.array([positions(digest) for digest in digests], np.uint64).reshape(-1, 2).T
            keys, shingled = np.zeros((len(texts), 0), np.uint64), np.zeros(len(texts), bool)
            if near is not None:
                keys, shingled = signatures(texts, near)
            columns = np.ascontiguousarray(keys.T)
            rows.write_columns([digests, places, draws, reasons, sizes, changed, shingled, *columns])
        rows.close()
        listed.close()
        decided.close()
        paragraphs.close()
        return tasks.Counted({}, removed=dict(removed))


class _Paragraphs:
    """The digests of the paragraphs of texts, where they are compared."""

    def __init__(self, out: Path, settings: Paragraphs | None) -> None:
        self._least = settings.least_characters if settings is not None else 0
        self._writer = (
            arrow.ArrowWriter(out / tasks.PARAGRAPHS, arrow.PARAGRAPHS_FORM, rows=1 << 14)
            if settings is not None
            else None
        )
        self._row = 0

    def saw(self, text: str) -> None:
        """The next row."""
        if self._writer is not None:
            for number, line in enumerate(text.split("\n")):
                if len(stripped := line.strip()) >= self._least:
                    self._writer.write((self._row, number, sha256(stripped.encode()).digest()))
        self._row += 1

    def close(self) -> None:
        """All rows were seen."""
        if self._writer is not None:
            self._writer.close()


def _fields(metadata: str) -> dict[str, Any]:
    found = parsed(metadata)
    assert isinstance(found, dict)  # encode wrote it
    return found


def judge(document: Document, steps: Sequence[tuple[str, Step]]) -> tuple[Document | None, list[Decision]]:
    """A document after all steps, and their decisions in order; the first that removes it is the last that is asked."""
    decisions: list[Decision] = []
    current: Document | None = document
    for _, step in steps:
        if current is None:
            break
        judgement = step.judge(current)
        decisions += judgement.decisions
        current = judgement.document
    return current, decisions
