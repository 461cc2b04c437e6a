"""A stored state that no segment starts from, the last one above all, is read too, and must be the recorded one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

FORGE_END = """
import shutil
from ledger import Draft, Log
from marin.record.root import open_root
root = open_root()
signer = root.signer()
drafts = [Draft(e.type, e.stream, dict(e.body), id=e.id, actor=e.actor, time=e.time) for _, e in root.reader().events()]
saved = [draft for draft in drafts if draft.type == "checkpoint.saved/v1"]
saved[-1].body["artifact"] = saved[0].body["artifact"]
shutil.rmtree(".marin/log"); shutil.rmtree(".marin/projections", ignore_errors=True)
Log.create(root.storage, signer)
with Log.open(root.storage, signer) as log:
    log.append(drafts)
"""


def test_a_last_state_that_is_another_one_is_found(project: Project) -> None:
    project.forked(FORGE_END)
    status, report = project.verify("--only", "artifacts", "--no-record")
    assert (status, report["verdicts"]["artifacts"]) == (1, "FAIL"), report
    assert any(line.startswith("training checkpoint of step 6: state") for line in report["details"]["artifacts"])
