"""Whether an experiment file says the same wherever it is loaded: graph and registration, from two processes that differ in what
it must not take values from.

One has no arguments, nothing to read, and the environment as it is. The other has arguments, text to read, another home, and a
working folder of another name with one more file; and its environment has an answer for whatever the file asks of it. No
list of ways to ask is complete, so what is compared is what was said. A file outside of the project that it opens is the same for
both, and is said of itself. What else a machine has (a name, a clock) is the same for both too: it is not noticed.
"""

from __future__ import annotations

import inspect
import json
import os
import posix
import subprocess
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from ledger import LedgerError, canonical_digest, digest_bytes
from marin.errors import UsageError
from marin.graph.files import load_experiment, load_graph
from marin.graph.graph import Node
from marin.graph.identity import kind_of
from marin.preregistration.registration import Registration
from marin.process.interpreter import collect_less_often, with_room

ANSWER = "1"
"""What the other environment says to every name that it does not have."""
WORDS = ("7",)
"""The other's arguments."""
SECONDS = 600
"""That a file may take to be loaded."""
LIBRARY = sysconfig.get_path("stdlib")


def differences(file: Path) -> list[str]:
    """The steps that are not the same in both processes, or not there, in words; none: the file takes nothing from outside.

    Raises:
        UsageError: the file ends a process that loads it, or never lets it go on.
    """
    file = file.resolve()
    with TemporaryDirectory(prefix="marin-check-") as name:
        folder, home = Path(name) / "elsewhere", Path(name) / "home"
        folder.mkdir()
        home.mkdir()
        for path in Path.cwd().iterdir():
            (folder / path.name).symlink_to(path)
        (folder / "marin-check.txt").write_text(ANSWER)
        other = {
            **os.environ,
            "HOME": str(home),
            "USER": "marin-check",
            "HOSTNAME": "marin-check",
            "PYTHONHASHSEED": "7",
        }
        programs = [
            _begun(Path(name) / "here.json", file, (), Path.cwd(), {**os.environ, "PYTHONHASHSEED": "1"}),
            _begun(Path(name) / "there.json", file, WORDS, folder, other),
        ]
        try:
            here = _awaited_answer(programs[0], file, "", Path(name) / "here.json")
            there = _awaited_answer(programs[1], file, f"{ANSWER}\n" * 9, Path(name) / "there.json")
        finally:
            for program in programs:
                program.kill()
                with suppress(OSError), program:  # closes what it reads from, and waits for it
                    pass
    if "error" in here or "error" in there:
        both = (("as it is", here), ("elsewhere", there))
        return [f"loaded {place}: {found['error']}" for place, found in both if "error" in found]
    return [key for key in sorted({*here, *there}) if here.get(key) != there.get(key)]


def _begun(
    answer: Path, file: Path, words: tuple[str, ...], folder: Path, environment: dict[str, str]
) -> subprocess.Popen[str]:
    """A process that loads the file, and writes down what it says."""
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-m", "marin.plugins.lab.conventions.purity", str(answer), str(file), *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": paths},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _awaited_answer(process: subprocess.Popen[str], file: Path, text: str, answer: Path) -> dict[str, str]:
    """What the file says in that process, by step; under ``error`` why it says nothing."""
    found = f"no end within {SECONDS} seconds"
    with suppress(subprocess.TimeoutExpired):
        process.communicate(text, timeout=SECONDS)
        found = f"the process ended with status {process.returncode}"
    if process.returncode != 0 or not answer.is_file():
        raise UsageError(
            "an experiment file does not leave the process alone that loads it",
            where=str(file),
            expected="a file that says what its steps are, and no more",
            found=found,
            cure="let it neither end a process nor keep one busy when it is loaded",
        )
    return {str(key): str(value) for key, value in json.loads(answer.read_bytes()).items()}


def _loaded(file: Path) -> dict[str, str]:
    """Digests of the file's steps by address, and of its registration."""
    try:
        graph = load_graph(file)
        stated = getattr(load_experiment(file), "experiment", None)
        said = {f"step {address}": canonical_digest(_parts(node)) for address, node in graph.nodes.items()}
    except LedgerError as error:
        return {"error": " ".join(str(error).split())[:300]}
    if isinstance(stated, Registration):
        said["its registration"] = digest_bytes(stated.document())
    return said


def _parts(node: Node) -> list[Any]:
    """Of what the identity of a step follows, once its inputs are made."""
    kind, pinned = kind_of(node.step), node.step.override
    inputs = {name: list(target) for name, target in sorted(node.inputs.items())}
    return [kind.name, kind.declared, kind.config(), inputs, "" if pinned is None else pinned.digest, node.step.apart]


def _asked_by(folder: Path) -> bool:
    """Whether a file below ``folder`` asked for what is being looked up, by whatever parts of the standard library; an
    import on the way is another's question."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            return False
        own = name == __file__ or name.startswith("<frozen ")
        if not own and not (name.startswith(LIBRARY) and "site-packages" not in name):
            return Path(name).is_relative_to(folder)
        frame = frame.f_back
    return False


def _notice_files(folder: Path, opened: set[str]) -> None:
    """Note which files outside of the project the file opens, from now on."""
    project = folder.parent if folder.name == "experiments" else folder
    inside = tuple(Path(place).resolve() for place in (project, Path.cwd(), sys.prefix, sys.base_prefix, "/dev"))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | bytes) or not _asked_by(folder):
            return
        path = Path(os.fsdecode(arguments[0])).resolve()
        if not any(path.is_relative_to(place) for place in inside):
            opened.add(str(path))

    sys.addaudithook(hook)


class _Answering(dict[Any, Any]):
    """The variables of a process, and an answer for every other name that the file asks for."""

    def __init__(self, variables: dict[Any, Any], folder: Path, answer: Any) -> None:
        super().__init__(variables)
        self._folder, self._answer = folder, answer

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or _asked_by(self._folder)

    def __getitem__(self, key: Any) -> Any:
        if not super().__contains__(key) and _asked_by(self._folder):
            return self._answer
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """As of a mapping."""
        try:
            return self[key]
        except KeyError:
            return default


def _main(answer: Path, file: Path, words: list[str]) -> None:
    """Write down what the file says."""
    sys.argv = [str(file), *words]
    opened: set[str] = set()
    if words:
        folder, other = file.parent, ANSWER.encode()
        vars(os.environ)["_data"] = _Answering(vars(os.environ)["_data"], folder, other)
        vars(posix)["environ"] = _Answering(posix.environ, folder, other)
        _notice_files(folder, opened)
    said = _loaded(file) | {f"what it reads from {path}": "" for path in sorted(opened)}
    answer.write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    collect_less_often()
    with_room(_main, Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
