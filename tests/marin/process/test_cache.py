"""Who compiles: one process at a time what has one name. Where matplotlib keeps its fonts, wherever it is imported."""

from __future__ import annotations

import ast
import fcntl
import logging
import os
from pathlib import Path

import pytest

from ledger import Refused
from marin.process.cache import cache_folder, compilation_cache
from marin.reporting.fonts import use_font_cache
from marin.verify.jax.replay import compiling

MARIN = Path(__file__).parents[3] / "marin"


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


def test_a_cache_of_somebody_else_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = compilation_cache()
    (programs / "program").write_bytes(b"code")
    assert compilation_cache() == programs
    monkeypatch.setattr("os.geteuid", lambda: 54321)
    with pytest.raises(Refused, match="another user") as refused:
        compilation_cache()
    assert refused.value.where == str(programs)
    assert "54321" in refused.value.expected
    assert refused.value.found
    assert refused.value.cure


def test_a_file_that_was_put_there_by_somebody_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = compilation_cache()
    planted = programs / "program"
    planted.write_bytes(b"code")
    if os.geteuid() == 0:
        os.chown(planted, 12345, -1)
    else:
        pytest.skip("only root gives files away")
    with pytest.raises(Refused, match="another user") as refused:
        compilation_cache()
    assert refused.value.where == str(planted)


@pytest.mark.parametrize(
    ("folder", "file", "refused"),
    [(0o700, 0o666, False), (0o755, 0o644, False), (0o755, 0o664, True), (0o755, 0o646, True), (0o777, 0o600, True)],
)
def test_what_others_can_write_is_refused(folder: int, file: int, refused: bool) -> None:
    programs = compilation_cache()
    (programs / "program").write_bytes(b"code")
    (programs / "program").chmod(file)
    programs.chmod(folder)
    if refused:
        with pytest.raises(Refused, match="others can write"):
            compilation_cache()
    else:
        compilation_cache()


def test_fonts_lie_in_the_cache_and_are_listed_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLCONFIGDIR", "")  # so that what is set below is taken back
    monkeypatch.delenv("MPLCONFIGDIR")
    log = logging.getLogger("matplotlib.font_manager")
    log.setLevel(logging.NOTSET)
    use_font_cache()
    assert os.environ["MPLCONFIGDIR"] == str(cache_folder() / "matplotlib")
    assert not log.isEnabledFor(logging.WARNING), "on a busy machine it says after five seconds that it lists fonts"
    monkeypatch.setenv("MPLCONFIGDIR", "/elsewhere")
    use_font_cache()
    assert os.environ["MPLCONFIGDIR"] == "/elsewhere"


def test_nobody_imports_matplotlib_before_it_has_its_place() -> None:
    early = []
    for file in sorted(MARIN.rglob("*.py")):
        text = file.read_text("utf-8")
        if "import matplotlib" not in text and "from matplotlib" not in text:
            continue
        tree = ast.parse(text)
        asks = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "use_font_cache"]
        loads = [
            name
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([one.name for one in node.names] if isinstance(node, ast.Import) else [str(node.module)])
        ]
        if not asks or any(name.partition(".")[0] == "matplotlib" for name in loads):
            early.append(file.relative_to(MARIN).as_posix())
    assert early == []
