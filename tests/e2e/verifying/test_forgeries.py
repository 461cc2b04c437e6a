"""A tenth of the workshop's forgeries (`python -m tests.adversary.forgeries` has all of them), made from the run of the session.

Those are drawn that a stranger has to notice without executing anything; what is noticed by execution is in the bench.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tests.adversary.forgeries.kinds as kinds
from marin.history.runs import run_ids
from tests.adversary.forgeries.__main__ import BEGIN, END
from tests.adversary.forgeries.bench import GOOD, chosen, judged
from tests.adversary.forgeries.registry import CLASSES, OF_REWARDS
from tests.adversary.forgeries.workshop import Base

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

QUICK = ("ledger", "artifacts")
PASSED_ONCE = (
    "a segment recorded before with invented losses",
    "a segment recorded after the training's end",
    "a step's end recorded before, with other metrics",
    "a training of other inputs recorded before",
    "a checkpoint recorded before with another artifact",
    "a run's end that lacks steps that it planned",
    "gradient norms recorded twice, first invented",
    "a gradient norm twice in one series",
    "a gradient norm with more digits than a float32",
    "results that only a stream of nobody has",
    "metrics in this run's name, in another stream",
    "a float in another spelling",
    "a recipe that leaves its defaults out",
    "evaluation alone left out, its number kept",
    "the export's step left out, its event kept",
    "a field more inside an output",
    "a metric beyond all floats",
    "no steps in the run's code, and another plan",
    "an evaluation that an experiment pinned",
    "a table more of the training",
    "a state far behind the run's end, to go on from",
    "a state in the middle of a segment",
    "a program under tensors/ of the last state",
    "two forms of one checkpoint",
    "a part of a mixture that nobody has",
    "a chunk of tokens that nothing reads",
    "a segment recorded before with invented losses and no batches",
    "a segment recorded before in another cut, that ends in another state",
    "a segment again, with invented losses, in JSON that is not canonical",
    "an event whose stream is named in escapes alone",
    "an event under the number of another",
    "an event under the id of another",
    "an entry that is no event and names the log's keys",
    "bytes that are no event, and name nobody",
    "an evaluation of a state that no segment leads to",
)
"""What a stranger believed until it was found; each stays a test."""
EXCUSED_ONCE = ("a swapped export, and a trace kept back", "swapped tokens, and a state kept back")
"""What failed no more once other bytes were kept back."""


def base_of(trained: Project, folder: Path) -> Base:
    (key,) = (trained.home / "config" / "marin").rglob("*.key")
    base = Base(folder, trained.root, key, "")
    (run,) = run_ids(base.root.history())
    return Base(folder, trained.root, key, run)


def drawn(count: int, seed: int) -> list[str]:
    """Names of quick kinds of the first run, as many as are wanted."""
    found = [kind for kind in chosen(None, None, None, seed) if kind.verdict in QUICK and kind.of == "run"]
    quick = {kind.name for kind in found if not kind.honest}
    return [kind.name for kind in chosen(None, None, len(kinds.KINDS), seed) if kind.name in quick][
        seed :: len(quick) // count
    ]


@pytest.mark.parametrize("name", dict.fromkeys((*PASSED_ONCE, *EXCUSED_ONCE, *drawn(9, seed=3))))
def test_a_forgery_is_refused_or_told_as_claimed(trained: Project, tmp_path: Path, name: str) -> None:
    (row,) = judged(base_of(trained, tmp_path), [kinds.KINDS[name]], alone=True)
    assert row.how in ("refused", "claimed", "without effect"), row


def test_there_are_many_kinds() -> None:
    assert len(kinds.KINDS) >= 120
    assert {kind.number for kind in kinds.KINDS.values()} == set(CLASSES) - {OF_REWARDS}


def test_the_table_tells_of_kinds_that_there_are_and_none_passes() -> None:
    text = Path("docs/verify.md").read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
    found = {row[1]: (row[0], row[2], row[3]) for row in rows}
    assert len(found) == len(rows) >= 120
    harness = 16  # class of kinds that need lm-evaluation-harness
    assert {name for name, kind in kinds.KINDS.items() if kind.number != harness} <= found.keys()
    for name, (number, by, how) in found.items():
        if "learned from rewards" in f"{number} {name}":  # made by training, in tests/plugins/rl/test_forgeries.py
            assert how in GOOD, name
            continue
        kind = kinds.KINDS[name]
        assert (number, by) == (f"{kind.number} {CLASSES[kind.number]}", kind.by) and how in GOOD, name
