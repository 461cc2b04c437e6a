"""Other processors, emulated: an interpreter on each, with the packages of requirements.lock.

QEMU executes every instruction of a program for another processor. What is needed comes pinned, as the judges do
(tests/foreign/judges.lock): QEMU itself, newer than this system's, because 7.2 breaks the locked compiler on ARM; for ARM the
libraries and the Python of a distribution; and from requirements.lock the wheels of that architecture, with their hashes. It is
unpacked in the user's cache (2.5 GB for ARM); nothing is installed.

    python tests/determinism/processors.py NAME [ARGUMENT...]     the interpreter of a processor, with these arguments

An interpreter is a script that starts the emulator, so that processes that a program starts are emulated too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
LOCK = PROJECT / "requirements.lock"
sys.path.insert(0, str(PROJECT / "tests" / "foreign"))

import judges  # noqa: E402

ARM = "neoverse-n1"
X86 = ("Skylake-Client-v3", "Haswell-v4", "EPYC-Rome-v2")
"""A Skylake without AVX-512, which `portable-cpu` refuses, and two others."""
NAMES = (ARM, *X86)
PYTHON = "3.13"  # of the distribution for ARM
SOURCE_ONLY = "antlr4-python3-runtime"
"""The one package of the lock without a wheel; it is Python alone."""


@cache
def interpreter(name: str) -> Path:
    """A Python that an emulated processor of that name executes.

    Raises:
        judges.Absent: something that is needed cannot be had here.
    """
    if shutil.which("uname") is None or os.uname().machine != "x86_64":
        raise judges.Absent("the emulators are those of x86-64 under Linux")
    return _arm() if name == ARM else _x86(name)


def environment(folder: Path, base: Mapping[str, str] = os.environ, *, compiled: Path | None = None) -> dict[str, str]:
    """Variables for a program of a stranger: this code, no keys and no caches of ours; its own are below ``folder``,
    and what it compiles is kept in ``compiled`` where that is given."""
    kept = {
        name: value for name, value in base.items() if not name.startswith(("MARIN", "XLA", "JAX", "XDG", "PYTHON"))
    }
    kept.pop("NPROC", None)
    places = {f"XDG_{kind.upper()}_HOME": str(folder / kind) for kind in ("config", "state", "cache")}
    # `marin verify` begins its process again for huge pages (marin/process/interpreter.py): minutes, where it is emulated,
    # and whatever the process had said before is said twice.
    small = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
    return kept | places | small | {"MARIN_CACHE": str(compiled or folder / "marin"), "PYTHONPATH": str(PROJECT)}


def compiled(name: str) -> Path:
    """Where the programs are kept that an emulated processor compiled, for anyone who asks it again: compiling takes it
    minutes. No two share a folder, for what was compiled for one must not be taken for another's."""
    return judges.cache_folder() / "compiled" / interpreter(name).parents[1].name


def _arm() -> Path:
    emulator, system = judges.room("qemu"), judges.room("aarch64")
    content = hashlib.sha256(LOCK.read_bytes() + f"{emulator.name} {system.name}".encode()).hexdigest()[:16]
    place = judges.cache_folder() / "built" / f"python-{ARM}-{content}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with judges.made_whole(place) as private:
            _packages(private / "lib" / f"python{PYTHON}" / "site-packages")
            home = system / "usr" / "bin"
            command = [emulator / "usr/bin/qemu-aarch64", "-cpu", ARM, "-L", system]
            _script(private, command, home / f"python{PYTHON}", PYTHON)
    return place / "bin" / "python"


def _packages(into: Path) -> None:
    options = ["--python-version", PYTHON, "--python-platform", "aarch64-manylinux_2_28", "--target", str(into)]
    options += ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--no-binary", SOURCE_ONLY]
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet"]
    judges.run([*uv, *options, "-r", str(LOCK)], env=os.environ | {"UV_SYSTEM_CERTS": "true"})


def _x86(name: str) -> Path:
    """This interpreter and these packages, executed by another processor."""
    emulator = judges.room("qemu")
    content = hashlib.sha256(f"{emulator.name} {sys.prefix} {sys.version}".encode()).hexdigest()[:16]
    place = judges.cache_folder() / "built" / f"python-{name}-{content}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with judges.made_whole(place) as private:
            short = f"{sys.version_info.major}.{sys.version_info.minor}"
            folder = private / "lib" / f"python{short}"
            folder.mkdir(parents=True)
            (folder / "site-packages").symlink_to(Path(sys.prefix) / "lib" / f"python{short}" / "site-packages")
            command = [emulator / "usr/bin/qemu-x86_64", "-cpu", name]
            _script(private, command, Path(sys.executable).resolve(), short)
    return place / "bin" / "python"


def _script(place: Path, emulator: list[str | Path], python: Path, version: str) -> None:
    """A virtual environment whose interpreter is a script. The emulator tells Python the script's name, by which it finds
    pyvenv.cfg and starts others like itself."""
    (place / "pyvenv.cfg").write_text(
        f"home = {python.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    (place / "bin").mkdir()
    script = place / "bin" / "python"
    command = " ".join(f"'{word}'" for word in emulator)
    script.write_text(f'#!/bin/sh\nexec {command} -0 "$0" \'{python}\' "$@"\n')
    script.chmod(0o755)


def main(arguments: list[str]) -> int:
    """Run the interpreter of the processor that is named first."""
    name, *rest = arguments
    with tempfile.TemporaryDirectory() as folder:
        own = environment(Path(folder), compiled=compiled(name))
        return subprocess.run([str(interpreter(name)), *rest], env=own, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
