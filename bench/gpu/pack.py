"""The way to a machine without a network: `python -m bench.gpu.pack FILE.tar` makes one archive of at most 60 MB.

In it are the source at HEAD, the wheels of the lock that a small training imports, and `go`, which does the rest there:

    tar xf FILE.tar && marin-gpu/go [--platform cuda] ...        (the options of `python -m bench.gpu`)

The machine brings Python of the lock's version and jax with its plugin, NumPy, ml_dtypes, SciPy, pyarrow and tensorstore;
`--brought NAME...` leaves out what else it has. What is too large to carry and not used in a training has a stand-in
(bench/gpu/stand_ins.py). A pack takes a minute or two: the wheels are fetched.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from bench.gpu.stand_ins import ABSENT, OPTIONAL

PROJECT = Path(__file__).resolve().parents[2]
LIMIT = 60 * 10**6
BROUGHT = frozenset({"jax", "jaxlib", "numpy", "ml-dtypes", "scipy", "pyarrow", "tensorstore", "marin-repro"})
"""What the machine has, and this project, which travels as source."""
IMPORTED = """
import sys
from bench.gpu import stand_ins
for finder in list(sys.meta_path):
    original = finder.find_spec
    finder.find_spec = lambda name, path=None, target=None, original=original: (
        None if name.partition(".")[0] in stand_ins.ABSENT | stand_ins.OPTIONAL else original(name, path, target))
stand_ins.install()
import marin.cli.main, marin.cli.verifying.verify, marin.cli.init, marin.cli.doctor
import marin.cli.running.train, marin.cli.looking.show
import marin.recipe.composition, marin.training.loop, marin.training.run, marin.runners.child
import marin.pipeline.stages, marin.pipeline.train, marin.pipeline.evaluate, marin.pipeline.export
import marin.verify.verification, marin.verify.judges.model, marin.execution.executor, bench.gpu.probes, bench.gpu.steps
import levanter.checkpoint, levanter.models.llama, levanter.optim.config, levanter.trainer, levanter.utils.mesh
marin.recipe.composition.compose(["model=nano", "profile=exact"])  # imports what reads words when there are some
sys.stdout.write("\\n".join({name.partition(".")[0] for name in sys.modules}))
"""
GO = """#!/bin/sh
# Makes an environment beside itself that sees what this machine's python3 sees, jax among it, and asks the GPU.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ ! -e "$here/environment/ready" ]; then
    seen=$(python3 -c 'import site, sysconfig; print("\\n".join({sysconfig.get_path("purelib"), *site.getsitepackages()}))')
    rm -rf "$here/environment"
    python3 -m venv --without-pip "$here/environment"
    site=$("$here/environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    python3 -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$here"/wheels/*.whl
    echo "$seen" > "$site/seen.pth"
    cp "$here/source/bench/gpu/stand_ins.py" "$site/marin_stand_ins.py"
    echo 'import marin_stand_ins; marin_stand_ins.install()' > "$site/marin_stand_ins.pth"
    touch "$here/environment/ready"
fi
cd "$here/source"
exec "$here/environment/bin/python" -m bench.gpu --out "$here/out" "$@"
"""
SOURCE = ("bench", "conf", "experiments", "ledger", "marin", "pyproject.toml", "params.yaml", "requirements.lock")
"""Of the project what a training reads, and what is asked there."""


def needed(brought: frozenset[str] = frozenset()) -> set[str]:
    """Distributions of the lock that have to travel: what a training and a replay import, as this environment has it.
    ``brought``: what else the machine has.

    Raises:
        SystemExit: something of it can not be imported here; the last words of the process that tried.
    """
    done = subprocess.run([sys.executable, "-c", IMPORTED], cwd=PROJECT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"what a training imports is not all here: {done.stderr.strip().rpartition(chr(10))[2]}")
    providers = importlib.metadata.packages_distributions()
    names = {
        each for module in done.stdout.split() if module not in ABSENT | OPTIONAL for each in providers.get(module, ())
    }
    return {_plain(name) for name in names} - BROUGHT - brought


def locked(names: set[str], lock: str) -> str:
    """The lines of a lock, hashes and all, that pin ``names``."""
    entries = re.split(r"\n(?=\S)", lock)
    return "\n".join(entry for entry in entries if _plain(entry.partition("==")[0]) in names) + "\n"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def pack(target: Path, brought: frozenset[str] = frozenset()) -> int:
    """Write the archive, without what the machine has of the lock's packages; returns its size in bytes.

    Raises:
        SystemExit: it would be larger than :data:`LIMIT`; the largest wheels are named.
    """
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base, "marin-gpu")
        (folder / "wheels").mkdir(parents=True)
        requirements = Path(base, "requirements.txt")
        requirements.write_text(locked(needed(brought), (PROJECT / "requirements.lock").read_text()))
        # `wheel`, for one of them is published as source alone
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*pip, "-r", str(requirements), "-w", str(folder / "wheels")], check=True)
        source = subprocess.run(
            ["git", "archive", "HEAD", *SOURCE], cwd=PROJECT, capture_output=True, check=True
        ).stdout
        (folder / "source").mkdir()
        subprocess.run(["tar", "x", "-C", str(folder / "source")], input=source, check=True)
        (folder / "go").write_text(GO)
        (folder / "go").chmod(0o755)
        with tarfile.open(target, "w:xz") as archive:
            archive.add(folder, folder.name)
        wheels = sorted(folder.glob("wheels/*"), key=lambda wheel: -wheel.stat().st_size)
        largest = ", ".join(f"{wheel.name} {wheel.stat().st_size / 1e6:.1f} MB" for wheel in wheels[:8])
    if (size := target.stat().st_size) > LIMIT:
        target.unlink()
        raise SystemExit(f"{size / 1e6:.1f} MB, more than {LIMIT / 1e6:.0f}; the largest wheels: {largest}")
    return size


def main() -> None:
    """Pack."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.pack", description=__doc__.partition("\n")[0])
    parser.add_argument("target", type=Path, help="the archive to write")
    parser.add_argument("--brought", nargs="*", default=[], metavar="NAME", help="what else the machine has")
    options = parser.parse_args()
    sys.stdout.write(
        f"{options.target}: {pack(options.target, frozenset(map(_plain, options.brought))) / 1e6:.1f} MB\n"
    )


if __name__ == "__main__":
    main()
