"""What a stranger's recipe names is not looked up: no path leaves the allowed folders, no address is asked."""

from __future__ import annotations

import glob
from pathlib import Path

import pytest

from marin.data import reach
from marin.data.local import matched
from marin.data.reach import Reach, check_address, expand, reaching, redirected
from marin.errors import DataError, DataMissing

NOTHING = Reach(folders=(), hosts=())


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MARIN_DATA", raising=False)
    folder = tmp_path / "home" / ".ssh"
    folder.mkdir(parents=True)
    (folder / "id_secretname.txt").write_text("secret")
    return folder


@pytest.mark.parametrize(
    "pattern", ["{0}/*", "{0}/*.txt", "{0}/../.ssh/*.txt", "/etc/pass*", "*", "{0}/id_secretname.txt"]
)
def test_a_glob_of_a_stranger_is_not_expanded(secrets: Path, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("the glob was looked up")

    named = pattern.format(secrets)
    assert matched([f"{secrets}/*.txt"])  # an operator's is
    monkeypatch.setattr(glob, "glob", forbidden)
    with reaching(NOTHING), pytest.raises(DataMissing, match="may reach") as caught:
        matched([named])
    assert "id_secretname" not in str(caught.value).replace(named, "")


def test_an_allowed_folder_is_read_and_no_link_leads_out_of_it(secrets: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("a")
    (texts / "b.txt").symlink_to(secrets / "id_secretname.txt")
    with reaching(Reach(folders=(str(texts),), hosts=())):
        assert expand(f"{texts}/*.txt", what="globs") == [str(texts / "a.txt")]
        for pattern in (f"{texts}/../home/.ssh/*", f"{texts}x/*", f"{texts}/b.txt/../*"):
            with pytest.raises(DataMissing):
                expand(pattern, what="globs")


def test_the_mirror_is_the_users_own_word(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_DATA", str(secrets))
    with reaching(NOTHING):
        assert len(matched([f"{secrets}/*.txt"])) == 1


def test_a_host_is_asked_only_when_it_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_address("https://anywhere.example/x")
    with reaching(Reach(folders=(), hosts=("data.example",))):
        check_address("https://data.example/x")
        for url in ("https://other.example/x", "https://data.example@other.example/x", "http://169.254.169.254/latest"):
            with pytest.raises(DataMissing, match="--allow network:"):
                check_address(url)


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("http://data.example/x", "leaves https"),
        ("file:///etc/passwd", "leaves https"),
        ("https://127.0.0.1:8000/x", "private network"),
        ("https://[::1]/x", "private network"),
        ("https://10.0.0.7/x", "private network"),
        ("https://169.254.169.254/latest/meta-data", "private network"),
        ("//192.168.1.1/x", "private network"),
    ],
)
def test_a_redirect_is_looked_at_before_it_is_followed(
    monkeypatch: pytest.MonkeyPatch, location: str, problem: str
) -> None:
    monkeypatch.setattr(reach.socket, "getaddrinfo", numbers_only)
    with pytest.raises(DataError, match=problem):
        redirected("https://data.example/x", location, 0)


def test_redirects_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach.socket, "getaddrinfo", numbers_only)
    assert redirected("https://data.example/a/x", "y", 0) == "https://data.example/a/y"
    with pytest.raises(DataError, match="without end"):
        redirected("https://data.example/a", "/b", reach.MOST_REDIRECTS)


def numbers_only(host: str, _: object) -> list[tuple[object, ...]]:
    if host.endswith(".example"):
        return [(0, 0, 0, "", ("93.184.215.14", 0))]
    return [(0, 0, 0, "", (host, 0))]
