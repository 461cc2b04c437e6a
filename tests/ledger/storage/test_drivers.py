"""An address is opened by the driver that an installed distribution has for its scheme."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger import Refused, open_storage
from ledger.storage.https import HttpsStorage


def _installed(folder: Path, points: str) -> None:
    (folder / "drivers.py").write_text(
        "from tests.ledger.memory import MemoryStorage\n"
        "class Opened(MemoryStorage):\n"
        "    def __init__(self, address, *, readonly):\n"
        "        super().__init__()\n"
        "        self.opened = address, readonly\n"
    )
    information = folder / "drivers-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: drivers\nVersion: 1\n")
    (information / "entry_points.txt").write_text(f"[ledger.storage]\n{points}\n")


def test_a_driver_of_somebody_elses_opens_its_own_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _installed(tmp_path, "shelf = drivers:Opened\nhttps = drivers:Opened")
    monkeypatch.syspath_prepend(tmp_path)
    assert vars(open_storage("shelf://a/b", readonly=True))["opened"] == ("shelf://a/b", True)
    assert isinstance(open_storage("https://example.org"), HttpsStorage), "an address of the ledger's own is not taken"


def test_an_address_without_a_driver_is_refused() -> None:
    with pytest.raises(Refused, match="unknown kind of storage"):
        open_storage("shelf://a/b")
