"""Every released type of event, kept as a proof: still verifiable, still read, still accepted by its schema."""

import sys
from pathlib import Path

import pytest

from ledger import Event, LogProof, verify_proof
from marin.record.schemas import Schemas

sys.path.insert(0, str(Path(__file__).parent))
import event_types as golden

FILES = sorted(golden.FOLDER.glob("*.tlog-proof"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_kept_event_is_verified_read_and_accepted(path):
    proven = verify_proof(LogProof.parse(path.read_bytes()), [golden.VKEY])
    event = Event.decode(proven.entry)
    assert golden.path_of(event.type) == path
    assert event.encode() == proven.entry
    Schemas().check(event.type, event.body)


def test_every_type_that_is_written_is_kept():
    """A new type needs its file: `python tests/golden/event_types.py` writes it."""
    missing = [kind for kind in golden.kinds() if not golden.path_of(kind).exists()]
    assert missing == []


def test_a_type_that_nobody_knows_is_kept_and_shown(tmp_path):
    assert "weather.seen/v9" not in Schemas()
    Schemas().check("weather.seen/v9", {"anything": [1]})
