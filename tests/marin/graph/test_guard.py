"""What a step may not do: write elsewhere, start processes in the executor's own, return what nobody can record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from marin.graph.execution.loop import Outcome
from marin.process import landlock
from marin.record.root import Root
from marin.verify.diagnosis import Health, diagnose

Execute = Callable[..., Outcome]


@pytest.fixture
def tmp_path(on_disk: Path) -> Path:
    """Every step may write in /dev, and so in /dev/shm, where other tests have their folders."""
    return on_disk


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("Path('outside.txt').write_text('x')", "writes outside its output"),
        ("os.mkdir('folder')", "writes outside its output"),
        ("os.rename(context.out / '..', 'elsewhere')", "writes outside its output"),
        ("(context.inputs['given'].path).unlink()", "writes outside its output"),
        ("return object()", "returned what JSON cannot say"),
        ("return Result(metrics={'x': float('nan')})", "a metric is not a number"),
        ("return None", "the step made nothing"),
        ("return 'x' * 2_000_000", "a returned value is too large"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("os.rmdir(context.out)", "the step stopped"),
    ],
)
def test_what_a_step_must_not_do(
    execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, what: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "cache"))
    outcome = execute(f"""
        def given(context):
            return 1

        def naughty(context):
            {body}

        steps = [Step("naughty", naughty, {{}}, {{"given": Step("given", given, {{}}, {{}}, HERE)}}, HERE)]
    """)
    assert what in outcome.failures["naughty"].error
    assert list(here.iterdir()) == []


ELSEWHERE = """
    import subprocess, sys

    def given(context):
        (context.out / "file").write_text("read me")

    def naughty(context):
        outside, file = TALLY.parent.parent / "outside", context.inputs["given"].path / "file"
        {body}
        return (context.out / "copy").read_text()

    steps = [Step("naughty", naughty, {{}}, {{"given": Step("given", given)}})]
"""


@pytest.mark.long
@pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "subprocess.run(f'echo x > {outside}', shell=True, check=True, capture_output=True)",
            "the step writes outside its output",
        ),
        ("subprocess.run(['cp', file, outside], check=True)", "a process of the step failed"),
        (
            """import ctypes, multiprocessing
        forked = multiprocessing.get_context('fork').Process(target=os.mkdir, args=(outside,))
        forked.start()
        forked.join()
        libc = ctypes.CDLL(None, use_errno=True)
        raise SystemExit(f"{os.system(f'mkdir {outside}') > 0} {forked.exitcode} {libc.mkdir(bytes(outside), 0o700)}")
     """,
            "SystemExit: True 1 -1",
        ),
    ],
)
def test_what_a_step_starts_cannot_write_elsewhere_either(
    execute: Execute, root: Root, tmp_path: Path, body: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    outcome = execute(ELSEWHERE.format(body=body))
    assert told in outcome.failures["naughty"].error
    assert not (tmp_path / "outside").exists()


def test_what_a_step_starts_reads_everywhere_and_writes_its_output(
    execute: Execute, root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "yet"))
    outcome = execute(
        ELSEWHERE.format(
            body=(
                "(outside.parent / 'not' / 'yet' / 'a library').mkdir();"
                "assert os.system(f'cp {file} {context.out}/copy && head /etc/passwd > /dev/null && '"
                " f'touch {context.scratch}/x') == 0;"
                "subprocess.run([sys.executable, '-c', 'import tempfile; tempfile.TemporaryFile()'], check=True);"
                "assert os.system(f'mktemp && ls {outside.parent}') == 0"
            )
        )
    )
    assert outcome.failures == {}
    digest = outcome.results["naughty"].output.artifact
    with root.store().open_file(digest, "value.json") as stream:
        assert json.load(stream) == "read me"


@pytest.mark.long
def test_a_kernel_without_landlock_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version", lambda: 0)
    monkeypatch.setattr("marin.verify.diagnosis.whole_steps", lambda: {"found": "", "expected": None})
    assert not landlock.write_only_below(["/nowhere"]), "and this process can still write"
    (said,) = [
        check for check in diagnose(project=Path("."), working=Path("."), root=".").checks if check.name == "steps"
    ]
    assert (said.health, "not seen" in said.found) == (Health.NOTE, True)


def test_a_function_in_the_executors_process_starts_none(execute: Execute, tmp_path: Path) -> None:
    outcome = execute(ELSEWHERE.format(body="os.system(f'touch {outside}')").replace("given)})", "given)}, HERE)"))
    assert "starts another one" in outcome.failures["naughty"].error
    assert "leave in_process=True out" in outcome.failures["naughty"].error
    assert not (tmp_path / "outside").exists()
