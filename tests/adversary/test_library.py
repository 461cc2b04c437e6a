"""The library believes whom the command line believes: the witnesses of the user's own trust count at both."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.format.cosigner import Cosigner
from marin.library.checking import verify_own
from marin.record.root import open_root
from marin.record.trust.trusted import default_trust
from tests.adversary.forgeries.doors.events import VERDICTS, signed
from tests.adversary.forgeries.doors.register import Stall
from tests.adversary.forgeries.workshop import as_operator, variable


def test_a_log_that_your_witnesses_never_saw_is_no_pass_in_the_library(
    stall: Stall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = signed(stall)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    key = Cosigner("witness.example", Ed25519PrivateKey.generate()).verifier
    with as_operator(shop.base), variable("MARIN_PINS", str(tmp_path / "pins")):
        root = open_root(str(shop.path))
        before = verify_own(root, shop.run, workers=1, only=VERDICTS, record=False)
        trust = default_trust()
        trust.folder.mkdir(parents=True, exist_ok=True)
        trust.policy_file.write_text(f"witness one {key}\nquorum one\n")
        after = verify_own(root, shop.run, workers=1, only=VERDICTS, record=False)
    assert before.report.verdicts["ledger"].outcome == "PASS"
    assert after.report.verdicts["ledger"].outcome != "PASS"
