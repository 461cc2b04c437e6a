"""The signing key's file: made once, private, and readable only with what it needs."""

import stat

import pytest

from ledger import (
    AlreadyExists,
    LedgerError,
    Malformed,
    Refused,
    Unavailable,
    create_key,
    default_key_path,
    load_signer,
)
from ledger.log.keys import PASSPHRASE_VARIABLE

ORIGIN = "log.example/a log".replace(" ", "-")


@pytest.fixture(autouse=True)
def no_passphrase(monkeypatch):
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)


def test_a_key_comes_back(tmp_path):
    path = tmp_path / "new" / "folder" / "key"
    made = create_key(path, ORIGIN)
    again = load_signer(path)
    assert again.verifier == made.verifier
    assert again.name == ORIGIN
    assert made.verifier.verify("text\n", again.sign("text\n"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_is_never_overwritten(tmp_path):
    create_key(tmp_path / "key", ORIGIN)
    before = (tmp_path / "key").read_bytes()
    with pytest.raises(AlreadyExists):
        create_key(tmp_path / "key", ORIGIN)
    assert (tmp_path / "key").read_bytes() == before


def test_a_missing_key_says_how_to_make_one(tmp_path):
    with pytest.raises(Unavailable, match="create"):
        load_signer(tmp_path / "key")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o601])
def test_a_key_that_others_can_reach_is_refused(tmp_path, mode):
    create_key(tmp_path / "key", ORIGIN)
    (tmp_path / "key").chmod(mode)
    with pytest.raises(Refused, match=f"{mode:04o}"):
        load_signer(tmp_path / "key")


def test_a_passphrase_is_needed_again(tmp_path, monkeypatch):
    made = create_key(tmp_path / "key", ORIGIN, passphrase="right")
    assert b"ENCRYPTED" in (tmp_path / "key").read_bytes()
    assert load_signer(tmp_path / "key", passphrase="right").verifier == made.verifier
    with pytest.raises(Unavailable, match=PASSPHRASE_VARIABLE):
        load_signer(tmp_path / "key")
    with pytest.raises(Refused, match="passphrase"):
        load_signer(tmp_path / "key", passphrase="wrong")
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "right")
    assert load_signer(tmp_path / "key").verifier == made.verifier


@pytest.mark.parametrize("cut", [0, 1, 10, 60, -1, -30])
def test_a_damaged_key_gives_our_own_error(tmp_path, cut):
    create_key(tmp_path / "key", ORIGIN)
    data = (tmp_path / "key").read_bytes()
    (tmp_path / "key").write_bytes(data[:cut])
    if cut == -1:  # only the last newline is gone
        assert load_signer(tmp_path / "key").name == ORIGIN
        return
    with pytest.raises(LedgerError):
        load_signer(tmp_path / "key")


def test_names_that_cannot_sign_are_malformed(tmp_path):
    for origin in ("", "with space", "with+plus", "two\nlines"):
        with pytest.raises(Malformed):
            create_key(tmp_path / "key", origin)
    assert not (tmp_path / "key").exists()


def test_the_default_path_is_in_the_users_configuration(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = default_key_path("log.example/../x")
    assert path.parent == tmp_path / "marin"
    assert default_key_path("a/b") != default_key_path("a%2Fb")
