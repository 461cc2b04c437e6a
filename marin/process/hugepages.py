"""Huge pages for large tensors: asked for before a process begins that will compute.

A train step allocates a gradient for every logical shard and gives it back, and the kernel makes and clears the pages
each time: at 25 million parameters hundreds of thousands of 4 KiB in one step (``bench.training.train_step`` counts
them). glibc (2.35 and newer) asks for huge ones where ``GLIBC_TUNABLES`` says so, and reads that once, when a process
begins. So a command that computes begins again with it set; what it starts inherits it. How memory is paged decides no
bit. ``GLIBC_TUNABLES=glibc.malloc.hugetlb=0`` is respected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

VARIABLE = "GLIBC_TUNABLES"
TUNABLE = "glibc.malloc.hugetlb"
COMPUTING = frozenset({"train", "run", "verify", "evaluate"})
"""Words of a command line that computes: commands of `marin`, and stages. The other stages would gain less than a second
beginning takes."""
_KERNEL = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def begin_again(arguments: Sequence[str]) -> None:
    """Execute this very program again with the variable set, if ``arguments`` name a command that computes and it helps
    here."""
    value = wanted(arguments, os.environ)
    if value is None or not sys.executable:
        return
    os.environ[VARIABLE] = value
    sys.stdout.flush()
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very program
    except OSError:  # then with small pages
        return


def wanted(arguments: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """What the variable should be; None where it is right, or nothing would come of it."""
    present = environ.get(VARIABLE, "")
    if TUNABLE in present or COMPUTING.isdisjoint(arguments) or not has_huge_pages():
        return None
    return ":".join(part for part in (present, f"{TUNABLE}=1") if part)


def has_huge_pages() -> bool:
    """Whether this C library gives huge pages by a tunable, and this kernel has them."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        recent = name == "glibc" and tuple(int(part) for part in version.split(".")[:2]) >= (2, 35)
        return recent and "[never]" not in _KERNEL.read_text(encoding="ascii")
    except (OSError, ValueError):  # another libc or kernel
        return False
