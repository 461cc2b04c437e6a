"""No byte that a root holds of a run can be changed so that a verifier still believes all of it.

Hypothesis changes one stored file of an honest run (a bit, the end, the whole) and asks the judges of the log and of the
artifacts, which hash everything that the other verdicts rest on. The only files that may change unnoticed are hints, of which
what they say is computed again before it is used, and what explains a run to people and decides no verdict.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import LedgerError, check
from marin.history.runs import run_ids
from marin.recipe.schema import Execution
from marin.record.root import Root, open_root
from marin.verify.case import Case
from marin.verify.derivation.record import read_record
from marin.verify.judges.artifacts import judge_artifacts

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

EXAMPLES = int(os.environ.get("MARIN_FUZZ", "40"))
HINTS = ("store/parts/",)
"""Hashes of the parts of large blobs, for anyone who reads one in pieces: what is read is hashed as a whole all the same."""
LOCAL = ("receipts/", "work/", "log/.lock", "projections/", ".gitignore")
"""What the machine keeps beside log and store; nobody verifies it, and nobody is given it."""
CLAIMED = ("vkey",)
"""Which key a root names for itself: what counts is the key that the verifier has."""


EXPLAINING = (b'[["marin/', b"diff --git ")
"""Lists of a step's files (marin/history/changes.py) say why it runs again, and differences to a commit what this tree had that
Git has not: the log names their digest, no verdict reads their bytes, and anyone who reads one has them hashed."""


@dataclass(frozen=True)
class Copied:
    """A root that may be damaged, and the files of log and store."""

    root: Root
    path: Path
    files: list[Path]

    def noticed(self, folder: Path) -> str:
        """What the first judge says who does not believe it; "" if all do."""
        try:
            if found := check(self.root.storage, self.root.keys().verifiers, artifacts=False):
                return str(found[0])
            history = self.root.history(fresh=True)
            (run,) = run_ids(history)
            record = read_record(history, run)
            case = Case(
                self.root,
                self.root.store_to_read(),
                history,
                self.root.keys(),
                record,
                record.run,
                Execution(),
                1,
                1,
                folder,
            )
            verdict = judge_artifacts(case)
        except LedgerError as error:
            return str(error)
        return "" if verdict.outcome == "PASS" else verdict.lines[0]


@pytest.fixture(scope="module")
def copied(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Copied:
    project = trained.copy(tmp_path_factory.mktemp("stored"))
    files = sorted(
        file
        for file in project.root.rglob("*")
        if file.is_file()
        and not file.relative_to(project.root).as_posix().startswith((*HINTS, *LOCAL, *CLAIMED))
        and not file.read_bytes().startswith(EXPLAINING)
    )
    (key,) = (project.home / "config" / "marin").rglob("*.key")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARIN_KEY", str(key))
        root = open_root(str(project.root))
        own = root.own_keys()
    return Copied(replace(root, own=own), project.root, files)


def damaged(data: bytes, how: str, place: int, bit: int) -> bytes:
    """Other bytes: one bit flipped, the end cut off, a byte more, nothing at all."""
    match how:
        case "flip" if data:
            at = place % len(data)
            return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
        case "cut" if data:
            return data[: place % len(data)]
        case _:
            return data + b"\0"


def test_the_honest_root_is_believed(copied: Copied, tmp_path: Path) -> None:
    assert copied.noticed(tmp_path) == ""


@settings(
    max_examples=EXAMPLES,
    derandomize="MARIN_FUZZ" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    which=st.integers(0, 1 << 16),
    how=st.sampled_from(["flip", "flip", "cut", "more"]),
    place=st.integers(0, 1 << 32),
    bit=st.integers(0, 7),
)
def test_no_stored_byte_can_be_changed_unnoticed(
    copied: Copied, tmp_path_factory: pytest.TempPathFactory, which: int, how: str, place: int, bit: int
) -> None:
    file = copied.files[which % len(copied.files)]
    before, mode = file.read_bytes(), file.stat().st_mode
    file.chmod(0o600)
    file.write_bytes(damaged(before, how, place, bit))
    try:
        assert copied.noticed(tmp_path_factory.mktemp("case")), file.relative_to(copied.path)
    finally:
        file.write_bytes(before)
        file.chmod(mode)
