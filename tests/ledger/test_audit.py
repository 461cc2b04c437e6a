"""What an audit remembers of ids: every hash that occurs twice is found, however few are in memory at once."""

import tempfile
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import StorageFailed
from ledger.audit import entries as audit

HASHES = st.integers(0, 3) | st.integers(2**62, 2**62 + 2) | st.integers(2**64 - 3, 2**64 - 1)


@given(st.lists(HASHES, max_size=40), st.sampled_from([1, 2, 3, 8, 64]), st.integers(1, 5))
def test_entries_that_share_a_hash_are_found(hashes: list[int], at_once: int, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "_IDS_AT_ONCE", at_once)
        ids = audit.EntryIds()
        for start in range(0, len(hashes), piece):
            ids.add(b"".join(one.to_bytes(8, "little") for one in hashes[start : start + piece]))
        times = Counter(hashes)
        expected = [index for index, one in enumerate(hashes) if one and times[one] > 1]
        assert ids.suspects() == expected
        assert ids.suspects() == expected


def test_no_room_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(StorageFailed, match="TMPDIR"):
        audit.EntryIds().add(b"12345678")
