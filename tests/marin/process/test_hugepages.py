"""A command that computes begins again with huge pages asked for, once; others do not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from marin.process import interpreter

BEGUN = """
import os, sys
print(os.environ.get("GLIBC_TUNABLES"), flush=True)
sys.argv = ["marin", *sys.argv[1:]]
from marin.cli.main import main
main()
"""


def begun(*arguments: str, **variables: str) -> list[str]:
    """The variable, as often as the program began."""
    kept = {name: value for name, value in os.environ.items() if name != interpreter.VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", BEGUN, *arguments], env=kept | variables, capture_output=True, text=True, check=False
    )
    return [line for line in done.stdout.splitlines() if line == "None" or "glibc" in line]


@pytest.mark.skipif(not interpreter.has_huge_pages(), reason="this C library or kernel has no huge pages for malloc")
def test_what_computes_begins_again_once() -> None:
    assert begun("-q", "stage", "train", "--params", "none.yaml") == ["None", "glibc.malloc.hugetlb=1"]
    assert begun("verify", "none", GLIBC_TUNABLES="glibc.malloc.check=0") == [
        "glibc.malloc.check=0",
        "glibc.malloc.check=0:glibc.malloc.hugetlb=1",
    ]


def test_others_and_who_decided_otherwise_do_not() -> None:
    assert begun("ls") == ["None"]
    assert begun("stage", "corpus", "--params", "none.yaml") == ["None"]
    assert begun("verify", "none", "--only", "ledger,artifacts") == begun("verify", "none", "--only=ledger") == ["None"]
    assert len(begun("verify", "none", "--only", "artifacts,training")) == 2
    assert begun("verify", "none", GLIBC_TUNABLES="glibc.malloc.hugetlb=0") == ["glibc.malloc.hugetlb=0"]


def test_a_kernel_without_them_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "has_huge_pages", lambda: False)
    assert interpreter.tunables_for(["stage", "train"], {}) is None
