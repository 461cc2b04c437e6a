"""The process of tests/services/warm.py: imports, of what computes or of the modules that its arguments name; then a fork
for each program, or job of a program (warm_jobs.py), that is asked for at the socket whose number is its first argument."""

from __future__ import annotations

import atexit
import gc
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any, NoReturn

from marin.process.interpreter import collect_less_often


def serve(listening: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """In this process: answers until the process that began it has ended, then None. In a fork: what is asked of it, and
    the files that came with it."""
    programs: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(sys.stdin, selectors.EVENT_READ)
        ready.register(listening, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is sys.stdin:  # says nothing, and ends
                    return None
                if key.fileobj is listening:
                    link, _ = listening.accept()
                    line, passed, _, _ = socket.recv_fds(link, 1 << 16, 4)
                    while not line.endswith(b"\n") and (more := link.recv(1 << 16)):
                        line += more
                    if not line.endswith(b"\n"):  # the client has ended
                        for descriptor in passed:
                            os.close(descriptor)
                        link.close()
                        continue
                    child = os.fork()
                    if child == 0:
                        asked = json.loads(line)
                        if "program" not in asked:
                            os.setsid()  # before anybody knows it: a signal to its group finds it
                        _tell(link, os.getpid())
                        for open_here in (listening, link, *(other for _, other in programs.values())):
                            open_here.close()
                        for watched in programs:
                            os.close(watched)
                        return asked, list(passed)
                    for descriptor in passed:
                        os.close(descriptor)
                    watched = os.pidfd_open(child)
                    programs[watched] = child, link
                    ready.register(watched, selectors.EVENT_READ)
                else:
                    ready.unregister(key.fd)
                    os.close(key.fd)
                    child, link = programs.pop(key.fd)
                    _tell(link, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                    link.close()


def _tell(link: socket.socket, number: int) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):  # the client has ended
        link.sendall(b"%d\n" % number)


def devices(arguments: list[str], contract: dict[str, str]) -> dict[str, str]:
    """The variables of the contract that say how many devices there are, if the program asks for some: jax reads them when it
    counts them, after the fork."""
    given = [after for one, after in pairwise(arguments) if one == "--devices" and after.isdecimal()]
    if not given or not contract:
        return {}
    from marin.process import arithmetic

    one, some = (f"{arithmetic.DEVICE_COUNT_FLAG}={count}" for count in ("1", given[-1]))
    return {name: contract[name].replace(one, some) for name in ("XLA_FLAGS", arithmetic.APPLIED)}


def become(asked: dict[str, Any], contract: dict[str, str]) -> None:
    """Folder, environment, arguments and files as a new process would have them."""
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"] | contract | devices(asked["arguments"], contract))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    for number, path in enumerate(asked["told"], 1):
        with open(path, "wb") as file:
            os.dup2(file.fileno(), number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    sys.argv = ["-c", *asked["arguments"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def executed(program: str) -> int:
    """The exit status of ``python -c PROGRAM``."""
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def finish(status: int) -> NoReturn:
    """What Python does before it ends: threads are waited for, exit functions called, files flushed."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # what Python takes apart at its end would be copied first


def jobs() -> ModuleType:
    """warm_jobs.py, which imports what computes."""
    return import_module("warm_jobs")


collect_less_often()


def what_computes() -> dict[str, str]:
    """Imported, under the contract of arithmetic, which is in force from now on; the variables that it set."""
    from hashed_once import hash_code_once

    from marin.process import arithmetic, interpreter
    from marin.provenance.code import code_folder, provenance
    from marin.recipe.schema import Arithmetic, Execution

    before = dict(os.environ)
    arithmetic.apply(Arithmetic(), Execution(devices=1))
    os.environ.setdefault(interpreter.VARIABLE, f"{interpreter.TUNABLE}=0")  # a fork does not begin again
    contract = {name: value for name, value in os.environ.items() if before.get(name) != value}
    jobs()
    import marin.graph.execution.loop
    import marin.pipeline.stages
    import marin.recipe.composition
    import marin.training.run
    import marin.verify.jax.replay
    import marin.verify.verification  # noqa: F401

    for name in ("hydra", "hydra.core.override_parser.overrides_parser", "jaxlib.mlir.dialects.mhlo"):
        import_module(name)  # what commands and jax import later
    hash_code_once()
    provenance(code_folder())
    return contract


listening, named = socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]
for module in named:
    import_module(module)
contract = {} if named else what_computes()
gc.freeze()  # what is here already is nothing that a fork has to look through
signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a keyboard: the process that began this ends it
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)  # threads of libraries, all idle
address = listening.getsockname()
if (given := serve(listening)) is None:
    finish(0)
asked, passed = given
if "program" in asked:
    become(asked, contract)
    if not named:
        jobs().offer(address)
    finish(executed(asked["program"]))
finish(jobs().execute(asked, *passed))
