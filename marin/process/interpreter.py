"""What CPython and the C library do with the memory of programs that import Levanter, and what they ask of them instead.

Objects. Hundreds of thousands are made while Levanter and jax are imported. With its first settings the collector of
reference cycles looks through the youngest of them after every 700, finds next to nothing, and takes about an eighth of
the time. At the end of a process Python takes all of them apart, one by one: seconds in which nothing is said any more.

Frames. A thread gets memory for the frames of its functions in chunks of 16 KiB (Python/pystate.c, ``push_chunk``), and a
chunk goes back to the system as soon as the first frame in it ends. A loop that happens to run where a chunk ends asks the
system for memory, and gives it back, at each call that it makes, as happens all through the imports of Levanter.

Pages. Huge pages for large tensors, asked for before a process begins that will compute. A train step allocates a gradient for
every logical shard and gives it back, and the kernel makes and clears the pages each time: at 25 million parameters hundreds
of thousands of 4 KiB in one step (``bench.training.train_step`` counts them). glibc (2.35 and newer) asks for huge ones where
``GLIBC_TUNABLES`` says so, and reads that once, when a process begins. So a command that computes begins again with it set;
what it starts inherits it. How memory is paged decides no bit. ``GLIBC_TUNABLES=glibc.malloc.hugetlb=0`` is respected.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, NoReturn

OBJECTS = 20_000
"""New containers before a collection of the youngest generation, instead of 700."""

ROOM = 512 << 10
"""Bytes for frames in one piece: some thousand calls, one inside the other."""

VARIABLE = "GLIBC_TUNABLES"
TUNABLE = "glibc.malloc.hugetlb"
COMPUTING = frozenset({"train", "run", "verify", "evaluate"})
"""Words of a command line that computes: commands of `marin`, and stages. The other stages would gain less than a second
beginning takes."""
HASHING = re.compile(r"--only=?(ledger|artifacts|,)+")
"""Options of a verification that computes nothing."""
_KERNEL = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def collect_less_often() -> None:
    """For this process, from now on."""
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])


def _call(function: Callable[..., Any], positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return function(*positional, **named)


# A frame that no chunk has room for gets one of its own, as large as the next power of two: as much again is left. Pages
# that no frame touches are never there.
_ROOMY = FunctionType(_call.__code__.replace(co_name="with_room", co_stacksize=ROOM // 8 + 1), globals())


def with_room[**P, T](function: Callable[P, T], *positional: P.args, **named: P.kwargs) -> T:
    """What ``function`` returns; the frames of all that it calls in this thread lie in one piece of :data:`ROOM`."""
    returned: T = _ROOMY(function, positional, named)
    return returned


def leave(status: int) -> NoReturn:
    """End this process as Python does, but for taking its objects apart: threads are awaited, what was registered for the
    end is called, streams are flushed. An interruption ends the waiting and changes nothing of the status."""
    with contextlib.suppress(KeyboardInterrupt):
        threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing ends its processes
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody reads, closed, none
            stream.flush()
    os._exit(status)


def begin_again(arguments: Sequence[str]) -> None:
    """Execute this very program again with the variable set, if ``arguments`` name a command that computes and it helps
    here; and with the code of the experiment in whose folder this is."""
    changes = {} if (value := tunables_for(arguments, os.environ)) is None else {VARIABLE: value}
    with contextlib.suppress(OSError):  # a folder that is gone
        changes |= experiment_path(Path.cwd(), Path(__file__).resolve().parents[2], os.environ)
    if not changes or not sys.executable:
        return
    os.environ.update(changes)
    sys.stdout.flush()
    with contextlib.suppress(OSError):  # then with small pages
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very program


def experiment_path(folder: Path, code: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The PYTHONPATH by which an experiment that DVC queued (or ``--temp``) executes its own code: where ``folder`` lies
    in the copy that DVC made of the checkout ``code``, which may have been edited since, and another path is there."""
    copies, present = code / ".dvc" / "tmp" / "exps", environ.get("PYTHONPATH", "")
    homes = copies, copies / "standalone"  # of what is queued, and of ``--temp``
    found = (path for path in (folder, *folder.parents) if path.parent in homes and (path / "marin").is_dir())
    if (copy := next(found, None)) is None or str(copy) in present.split(os.pathsep):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(copy), present)))}


def tunables_for(arguments: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """What the variable should be; None where it is right, or nothing would come of it."""
    present = environ.get(VARIABLE, "")
    only = re.sub(r"--only (\S+)", r"--only=\1", " ".join(arguments)).split()
    computes = not COMPUTING.isdisjoint(arguments) and not any(map(HASHING.fullmatch, only))
    if TUNABLE in present or not computes or not has_huge_pages():
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
