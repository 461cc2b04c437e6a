"""Who compiles: one process at a time what has one name."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from marin.cache import cache_folder, compiling


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_CACHE", str(tmp_path / "cache"))


def is_free(name: str) -> bool:
    with (cache_folder() / "compiling" / name).open("a") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_what_is_being_compiled_waits_and_what_is_not_does_not() -> None:
    with compiling("recipe-1"):
        assert (is_free("recipe-1"), is_free("recipe-2")) == (False, True)
    assert is_free("recipe-1")


def test_a_compiler_that_fails_lets_the_next_one_begin() -> None:
    with pytest.raises(MemoryError), compiling("recipe-1"):
        raise MemoryError
    assert is_free("recipe-1")


def test_the_cache_is_the_users_alone() -> None:
    with compiling("recipe-1"):
        assert (cache_folder() / "compiling").stat().st_mode & 0o077 == 0
