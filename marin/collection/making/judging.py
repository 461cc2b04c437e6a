"""The task ``judge``: what was read of a slice goes through the steps of one document; digests and MinHash keys of what is left.

It writes no text again but those that a step changed, so a rule that is set otherwise costs no second reading of the sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import orjson

from marin.collection.comparing.contamination import STEP as CONTAMINATION
from marin.collection.comparing.contamination import Decontaminate, Evaluations, load_evaluations
from marin.collection.comparing.near import signatures
from marin.collection.document import Decision, Document, Step
from marin.collection.making.columns import (
    DECISIONS,
    LISTING,
    ArrowRows,
    ArrowWriter,
    ParquetWriter,
    decision_row,
    judged,
)
from marin.collection.making.task import DECIDED, JUDGED_FILE, LISTED, READ_FILE, Answer, Setup, Task
from marin.collection.settings import divided, step_settings
from marin.data.documents import positions

NOTHING = bytes(32)
"""In the place of the digest of a text that is removed."""


class Judge:
    """The steps of one document, made once in a worker, when they are wanted."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._steps: list[tuple[str, Step]] | None = None

    def steps(self) -> list[tuple[str, Step]]:
        """Those behind the ones that make text of pages, in order."""
        if self._steps is None:
            settings = self._setup.settings
            rest = step_settings(divided(settings.steps)[1], where="settings")
            self._steps = [(kind, made.make()) for kind, made in rest]
            if self._setup.evaluations:
                files = [(Path(path), name) for path, name in self._setup.evaluations]
                fields = load_evaluations(files, self._setup.evaluation_fields)
                self._steps.append((CONTAMINATION, Decontaminate(Evaluations(fields, settings.contamination))))
        return self._steps

    def __call__(self, task: Task, out: Path) -> Answer:
        """Judge what was read under the same name."""
        setup = self._setup
        near, removed = setup.settings.near, Counter[str]()
        rows = ArrowWriter(out / JUDGED_FILE, judged(near.bands if near is not None else 0))
        listed, decided = ParquetWriter(out / LISTED, LISTING), ParquetWriter(out / DECIDED, DECISIONS)
        source = setup.sources[task.source].source.name
        for batch in ArrowRows(Path(setup.folder) / "read" / task.name / READ_FILE).batches():
            digests, reasons, sizes, changed, texts = [], [], [], [], []
            for row in zip(*(column.to_pylist() for column in batch), strict=True):
                identity, position, as_read, reason, text, added, created, metadata = row
                document: Document | None = None
                url = _url(metadata)
                if not reason:
                    before = Document(identity.hex(), text, source, added, created, orjson.loads(metadata))
                    document, decisions = judge(before, self.steps())
                    for order, decision in enumerate(decisions):
                        decided.write(decision_row(decision, order))
                    if document is None:
                        reason = decisions[-1].reason
                        removed[reason] += 1
                left = "" if document is None else document.text
                encoded = left.encode()
                digest = NOTHING if document is None else sha256(encoded).digest()
                digests.append(digest)
                reasons.append(reason)
                sizes.append(len(encoded))
                changed.append(left if document is not None and left is not text else None)
                texts.append(left)
                said = "" if document is None else digest.hex()
                listed.write((identity.hex(), position, url, as_read.hex(), said, reason))
            places, draws = np.array([positions(digest) for digest in digests], np.uint64).reshape(-1, 2).T
            keys, shingled = np.zeros((len(texts), 0), np.uint64), np.zeros(len(texts), bool)
            if near is not None:
                keys, shingled = signatures(texts, near)
            columns = np.ascontiguousarray(keys.T)
            rows.write_columns([digests, places, draws, reasons, sizes, changed, shingled, *columns])
        rows.close()
        listed.close()
        decided.close()
        return Answer({}, removed=dict(removed))


def _url(metadata: str) -> str:
    return str(orjson.loads(metadata).get("url") or "") if '"url"' in metadata else ""


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
