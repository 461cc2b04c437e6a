"""Completion as shells ask for it: bash in a real one, zsh and fish too where they are installed."""

# Taken by their commands: marin.plugins.scale.

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Marin = Any


def offered(line: str, shell: str = "bash", *, cwd: Path | None = None) -> list[str]:
    """The words that the program offers where ``line`` stands, cut as bash cuts it: at blanks and at "="."""
    words = line.replace("=", " = ").split() if shell == "bash" else line.split()
    words += [""] if line.endswith(" ") else []
    environment = {**os.environ, "_MARIN_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(words)}
    environment["COMP_CWORD"] = str(len(words) - 1) if shell != "fish" else words[-1]
    done = subprocess.run(
        [sys.executable, "-m", "marin.cli.main"],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stderr == "" and done.returncode in (0, 1), done.stderr
    if shell == "zsh":
        return done.stdout.splitlines()[1::3]
    return [text.partition(",")[2].partition("\t")[0] for text in done.stdout.splitlines() if text]


@pytest.mark.long
def test_runs_are_offered_with_what_they_are(marin: Marin, run: str) -> None:
    for line in ("marin verify ", "marin show ", "marin diff 2k ", "marin sample ", "marin run "):
        assert run in offered(line), line
    assert offered("marin verify lat") == ["latest"]
    assert offered(f"marin verify {run[:2]}") == [run]
    assert offered(f"marin verify {run[:2]}", "zsh") == [run]
    assert offered(f"marin verify {run[:2]}", "fish") == [run]
    assert offered(f"marin run {run} ar") == ["archive"]
    marin("run", run, "archive")
    assert offered("marin verify 2") == []


def test_members_of_a_group_and_their_options_are_offered() -> None:
    assert {"append", "verify-proof", "witness"} <= set(offered("marin ledger "))
    assert offered("marin ledger app") == ["append"] and "--batch" in offered("marin ledger append --")


def test_groups_members_fields_and_their_values(marin: Marin) -> None:
    asked = offered("marin train ")
    assert {"model=", "dataset=", "optimizer.learning_rate="} <= set(asked)
    assert asked.index("model=") < asked.index("arithmetic.threads="), "groups first"
    assert offered("marin train model=na") == ["nano"], "bash has model and = as words of their own"
    assert {"nano", "1m", "llama-8b"} <= set(offered("marin train model="))
    assert offered("marin train model=na", "zsh") == ["model=nano"]
    assert offered("marin train model=na", "fish") == ["model=nano"]
    assert offered("marin train model=nano datas") == ["dataset="]
    assert offered("marin compile trainer=smok") == ["smoke"]


def test_metrics_devices_columns_types_verdicts(marin: Marin, run: str) -> None:
    assert offered("marin show metric evaluate.p") == ["evaluate.perplexity="]
    assert "h100" in " ".join(offered("marin train --dry-run --device "))
    assert offered("marin ls --columns run,perp") == ["run,perplexity"]
    assert offered("marin log --type train.se") == ["train.segment/v1"]
    assert offered("marin verify --only ledger,art") == ["ledger,artifacts"]
    assert "ray" in offered("marin train --runner ")


def test_where_there_is_no_root_nothing_is_offered_and_nothing_is_said(
    marin: Marin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / "none"))
    assert offered("marin verify x") == []


def test_bash_completes_by_the_script_that_is_printed(marin: Marin, run: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "marin"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m marin.cli.main "$@"\n')
    program.chmod(0o755)
    script = f"""
eval "$(marin completion bash)"
COMP_WORDS=(marin verify {run[:3]}); COMP_CWORD=2
_marin_completion marin
echo "${{COMPREPLY[@]}}"
"""
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.split() == [run], done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_take_the_script(marin: Marin, shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(marin("completion", shell).out)
    assert len(script.read_text().splitlines()) > 5
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([program, "-n", script], check=True, capture_output=True, timeout=600)
