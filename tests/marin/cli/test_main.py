"""The root of the command line: errors as one line and a status, nothing loaded that is not called."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import pytest

from ledger import Conflict, LedgerError, Refused, StorageFailed, Tampered, Unavailable
from marin.cli import main
from marin.errors import Interrupted, MissingEvidence, Unsupported, UsageError

Trial = Callable[[BaseException], tuple[int, str]]


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Trial:
    """Run a command that raises; returns the status and what stderr got."""
    monkeypatch.delenv("MARIN_DEBUG", raising=False)

    def run(error: BaseException) -> tuple[int, str]:
        @click.command()
        def trial() -> None:
            """Raise."""
            raise error

        module = ModuleType("trial_command")
        module.trial = trial  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "trial_command", module)
        monkeypatch.setitem(main.COMMANDS, "trial", main.Lazy("trial_command", "Raise."))
        status = main.run(["trial"])
        out, err = capsys.readouterr()
        assert out == ""
        return status, err

    return run


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (LedgerError, 1),
        (Tampered, 1),
        (Conflict, 1),
        (StorageFailed, 1),
        (Refused, 2),
        (UsageError, 2),
        (Unavailable, 3),
        (Unsupported, 3),
        (MissingEvidence, 3),
        (Interrupted, 130),
    ],
)
def test_an_error_is_one_line_with_all_its_parts(trial: Trial, kind: type[LedgerError], status: int) -> None:
    error = kind("bytes differ", where="blob 7", expected="aa", found="bb\nTraceback (forged)", cure="put it again")
    assert trial(error) == (
        status,
        "marin: bytes differ: blob 7: expected aa, found bb Traceback (forged); put it again\n",
    )


def commands_of_the_library() -> set[str]:
    """All commands that messages of ledger name."""
    texts = [path.read_text("utf-8") for path in (Path(__file__).parents[3] / "ledger").rglob("*.py")]
    return {command for text in texts for command in re.findall(r"`((?:ledger|store) [^`\n]+)`", text)}


@pytest.mark.parametrize("command", sorted(commands_of_the_library()))
def test_a_command_that_the_library_names_can_be_typed(trial: Trial, command: str) -> None:
    found: click.Command = main.marin
    for word in command.split():
        assert isinstance(found, click.Group), command
        resolved = found.get_command(click.Context(found), word)
        assert resolved is not None, command
        found = resolved
    assert trial(Refused("no", cure=f"see `{command}`"))[1] == f"marin: no; see `marin {command}`\n"


def test_a_defect_is_one_line_and_says_how_to_see_more(trial: Trial) -> None:
    status, err = trial(ZeroDivisionError("division by zero"))
    assert status == main.EXIT_DEFECT
    assert err.count("\n") == 1
    assert "ZeroDivisionError: division by zero" in err
    assert "MARIN_DEBUG=1" in err


@pytest.mark.parametrize("error", [SystemError("error return without exception set"), ImportError("cannot allocate")])
def test_where_memory_is_limited_what_extensions_make_of_it_is_no_defect(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    assert trial(error)[0] == main.EXIT_DEFECT
    monkeypatch.setattr("resource.getrlimit", lambda kind: (1 << 29, 1 << 29))
    status, err = trial(error)
    assert status == 3 and "--memory" in err


def test_debug_shows_the_traceback(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        trial(ZeroDivisionError())
    with pytest.raises(Tampered):
        trial(Tampered("bytes differ"))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interruption_has_its_own_status(trial: Trial, error: BaseException) -> None:
    assert trial(error) == (130, "marin: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_asks_to_stop_ends_a_command_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    ended = []

    def call(arguments: object) -> int:
        try:
            os.kill(os.getpid(), number)
        finally:
            ended.append("what it had begun")
        return 0

    monkeypatch.setattr(main, "call", call)
    before = signal.getsignal(number)
    assert main.run([]) == 130
    assert ended and signal.getsignal(number) is before
    assert capsys.readouterr().err == f"marin: interrupted by {number.name}\n"


@pytest.mark.parametrize(("near", "end"), [(["--help", "--step"], " Did you mean '--step'?"), (["--help"], "")])
def test_an_option_that_is_none_is_not_taken_for_help(trial: Trial, near: list[str], end: str) -> None:
    status, err = trial(click.NoSuchOption("--steps", possibilities=near))
    assert status == 2
    assert err.endswith(f"Error: No such option '--steps'.{end}\n")


def test_a_full_disk_is_named_with_a_cure(trial: Trial) -> None:
    status, err = trial(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/blob"))
    assert status == 3
    assert err == "marin: No space left on device: /data/blob; free some space and run the same command again\n"


def test_of_a_copy_the_disk_that_is_full_is_named(trial: Trial) -> None:
    _, err = trial(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/source", None, "/data/copy"))
    assert err.startswith("marin: No space left on device: /data/copy; ")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "Permission denied: /data/page.html; give this user the rights, or name another place"),
        (errno.EPERM, "Operation not permitted: /data/page.html; give this user the rights, or name another place"),
        (
            errno.EROFS,
            "Read-only file system: /data/page.html; the file system is mounted read-only: name another place",
        ),
    ],
)
def test_what_this_user_may_not_write_is_unavailable_and_nothing_is_wrong(
    trial: Trial, number: int, words: str
) -> None:
    refused = OSError(number, os.strerror(number), "/data/page.html")
    assert trial(refused) == (3, f"marin: {words}\n")
    failed = StorageFailed(
        "could not lock a file", where="log/.lock", found=os.strerror(number), cure="name another place"
    )
    failed.__cause__ = refused
    status, err = trial(failed)
    assert status == 3 and "log/.lock" in err
    failed.__cause__ = OSError(errno.EIO, os.strerror(errno.EIO))
    assert trial(failed)[0] == 1


def test_root_is_seen_by_everything_that_is_started_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @click.command()
    def trial() -> None:
        seen.append(os.environ["MARIN_ROOT"])

    module = ModuleType("trial_command")
    module.trial = trial  # type: ignore[attr-defined]
    monkeypatch.setenv("MARIN_ROOT", "elsewhere")
    monkeypatch.setitem(sys.modules, "trial_command", module)
    monkeypatch.setitem(main.COMMANDS, "trial", main.Lazy("trial_command", "Say the root."))
    assert main.run(["trial"]) == 0
    assert main.run(["--root", "before", "trial"]) == 0
    assert main.run(["trial", "--root", "after"]) == 0
    assert main.run(["--root", "before", "trial", "--root", "after"]) == 0
    assert seen == ["elsewhere", "before", "after", "after"]


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--root", "", "ls"]) == 2
    assert main.run(["nonsense"]) == 2
    assert main.run(["--nonsense"]) == 2
    assert main.run(["ledger", "apend"]) == 2
    assert main.run(["fsck"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "No such command 'nonsense'" in err
    assert "No such option" in err
    assert "No such command 'apend': did you mean append?" in err
    assert "No such command 'fsck': did you mean marin ledger fsck?" in err


def marin(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "marin.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | variables)


def test_the_program_prints_help_and_version() -> None:
    shown = marin("--help")
    assert shown.returncode == 0
    assert all(f"\n  {name}" in shown.stdout for name in main.COMMANDS)
    assert marin("--version").stdout == f"marin {main.__version__}\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    program = "import sys\nfrom marin.cli.main import run\nsys.stdin.read()\nsys.exit(run(['--help']))"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == main.EXIT_BROKEN_PIPE


def test_a_missing_root_is_one_line(tmp_path: object) -> None:
    done = marin("ls", "--root", f"{tmp_path}/none", MARIN_DEBUG="")
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.startswith("marin: there is no root here: ")
    assert "marin init" in done.stderr
    assert done.stderr.count("\n") == 1
