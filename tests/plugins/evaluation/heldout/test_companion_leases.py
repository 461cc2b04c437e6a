"""What a training that was taken over lacks is measured by one executor: who finds the lease taken waits, and looks again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledger import canonical_digest
from marin.execution.leases.lease import Claimant, Leases, utc_now
from marin.execution.leases.step import StepLease
from marin.plugins.evaluation.heldout import companion
from marin.record.root import Root, open_root

KEY = canonical_digest({"evaluation": "abcd2345"})


def leases_of(root: Root) -> Leases:
    leases = Leases()
    leases.catch_up(root)
    return leases


@pytest.mark.parametrize("is_measured", [True, False], ids=["it measures", "it gives up"])
def test_another_executor_is_waited_for(project: Path, monkeypatch: pytest.MonkeyPatch, is_measured: bool) -> None:
    root, other = open_root(str(project / ".marin")), Claimant("other")
    missing, holders = ["a state"], list[str]()

    class Measuring:
        @staticmethod
        def begun(*given: Any) -> Any:
            return Measuring()

        def catch_up(self, until: int) -> None:
            holders.append(leases_of(root).steps[KEY])
            missing.clear()

    wait = StepLease.wait

    def ends(self: StepLease) -> None:
        if KEY in leases_of(root).steps:
            assert holders == [], "nothing is measured meanwhile"
            root.append([other.release(leases_of(root), [KEY])])
            if is_measured:
                missing.clear()
        wait(self)

    monkeypatch.setattr(companion, "load", lambda *_: SimpleNamespace(recipe=SimpleNamespace(last_step=3)))
    monkeypatch.setattr(companion, "_missing", lambda *_: list(missing))
    monkeypatch.setattr(companion, "Measuring", Measuring)
    monkeypatch.setattr(StepLease, "wait", ends)
    root.append([other.take(leases_of(root), {KEY: "evaluation"}, (), utc_now())])
    companion.COMPANION.completed(root, "abcd2345", None)  # type: ignore[arg-type]
    assert holders == ([] if is_measured else [Claimant.of_process().executor])
    assert leases_of(root).steps == {}
