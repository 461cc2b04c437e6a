"""`make compilers`: does a run that was recorded under one jaxlib verify under others, bit for bit?

    python -m bench.compilers [VERSION ...] [--recorded ARCHIVE] [--folder FOLDER] [--trained] [--write docs/exact.md]

Of each version (`newest`: whatever the package index has) an environment in FOLDER (a temporary one, unless named; what is
there is kept): jax and jaxlib alone, without what they or others ask for, and behind them all other packages of this
environment. In it, each in a process of its own: the known answers of docs/exact.md; the newest run in ARCHIVE
(`tests/golden/exact.tar.gz`), judged whole by `marin verify` under the key beside it; and the known answer of whole train
steps under portable-cpu, which is only told. `--trained` also trains two train steps of the default model, of a mixture of
experts and by MuonH here, and judges them there.

Prints a table. Exit status 1 where a version that could be installed has another verdict than PASS.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from marin.process.text import clipped, visible

PROJECT = Path(__file__).resolve().parents[1]
RECORDED = PROJECT / "tests/golden/exact.tar.gz"
VERSIONS = ("0.10.2", "0.11.0", "0.11.1", "0.11.2", "0.12.0.1", "newest")
BEGIN, END = "<!-- compilers: begin -->", "<!-- compilers: end -->"
HEAD = ("jax and jaxlib", "known answers", "a recorded run", "`portable-cpu`")
MARIN = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"
PORTABLE = (
    "from marin.process.arithmetic import apply; from marin.recipe.schema import Arithmetic, Execution; "
    "apply(Arithmetic(), Execution()); from marin.training.step import known as k; print(k.whole())"
)
TWO_STEPS = ("profile=exact", "trainer.num_steps=2", "trainer.steps_per_segment=2", "--devices", "1")
TRAINED = {
    "two train steps of the default model": (),
    "of a mixture": ("model=moe-nano",),
    "by MuonH": ("model=nano", "optimizer=muonh"),
}
"""Columns, and the recipe of each."""


@dataclass(frozen=True)
class Judge:
    """An environment of one version, and where it keeps what it compiles."""

    python: Path
    version: str
    variables: Mapping[str, str]

    def ask(self, *arguments: str, folder: Path = PROJECT) -> tuple[int, str, str]:
        """Exit status, stdout and stderr of this Python."""
        done = subprocess.run(
            [str(self.python), *arguments], cwd=folder, env=self.variables, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def marin(self, *arguments: str, folder: Path = PROJECT) -> Any:
        """The JSON that a command prints.

        Raises:
            RuntimeError: it prints none; with what it said last.
        """
        _, out, said = self.ask("-c", MARIN, "-q", *arguments, folder=folder)
        try:
            return json.loads(out)
        except ValueError:
            raise RuntimeError(_last(said)) from None


def environment(folder: Path, version: str) -> Judge:
    """An environment of jax and jaxlib in this version, made where it is not there.

    Raises:
        RuntimeError: they can not be installed.
    """
    python = folder / version / "bin/python"
    if version == "newest" or not (folder / version / "made").is_file():
        uv = [sys.executable, "-m", "uv"]
        _done([*uv, "venv", "--quiet", "--no-project", "--clear", "--python", sys.executable, str(folder / version)])
        install = [*uv, "pip", "install", "--quiet", "--python", str(python), "--no-deps"]
        if version == "newest":
            _done([*install, "jaxlib"])
            names = ["jax==" + _installed(python)]
        else:
            names = [f"jax=={version}", f"jaxlib=={version}"]
        _done([*install, *names])
        here, there = (sysconfig.get_path("purelib", vars=each) for each in (None, {"base": str(folder / version)}))
        behind = f"import site; site.addsitedir({str(here)!r})\n"
        Path(there).joinpath("behind.pth").write_text(behind, encoding="utf-8")
        (folder / version / "made").touch()
    own = {
        "XDG_CACHE_HOME": f"{folder}/cache/{version}",
        "XDG_STATE_HOME": f"{folder}/state",
        "MARIN_PINS": f"{folder}/pins",
    }
    return Judge(python, _installed(python), {**os.environ, **own, "MARIN_KEY": f"{folder}/own.key"})


def _installed(python: Path) -> str:
    return _done([str(python), "-c", "from importlib.metadata import version; print(version('jaxlib'))"])


def _done(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(_last(done.stderr))
    return done.stdout.strip()


def _last(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return clipped(visible(lines[-1]) if lines else "it said nothing", 200)


def known(judge: Judge) -> str:
    """Which known answers of docs/exact.md come out."""
    status, out, said = judge.ask("-m", "marin.plugins.exact.known")
    if status:
        return _last(said)
    wrong = json.loads(out)
    return f"others in {', '.join(wrong)}" if wrong else "all"


def portable(judge: Judge) -> str:
    """What is known of whole train steps under portable-cpu, beside the locked compiler's."""
    from marin.training.step.known import ANSWERS

    status, out, said = judge.ask("-c", PORTABLE)
    if status:
        return _last(said)
    return "the locked one's bits" if out.strip() in ANSWERS.values() else "other bits"


def verified(judge: Judge, root: Path, *options: str) -> str:
    """The verdicts that are not PASS, with their first lines; and which program is another, where one is."""
    key = (root / "vkey").read_text("utf-8").strip()
    told = ("--no-record", "--json", "--vkey", key, *options)
    report = judge.marin("--root", str(root), "verify", "latest", *told)
    asked = {name: outcome for name, outcome in report["verdicts"].items() if outcome != "NOT_RUN"}
    others = [
        f"{name} {outcome}: {clipped(report['details'][name][0], 160)}"
        for name, outcome in asked.items()
        if outcome != "PASS"
    ]
    programs = [line.split(": recorded")[0] for line in report["details"]["training"] if "different program" in line]
    first = [line.partition("; ")[2] for line in report["details"]["training"] if "different program" in line]
    return "; ".join(
        [*(others or ["PASS"]), *(f"{name} ({where})" for name, where in zip(programs, first, strict=True))]
    )


def train(folder: Path, recipe: Sequence[str]) -> None:
    """Two train steps of this recipe in a root of their own, by this environment; once."""
    if folder.exists():
        return
    with TemporaryDirectory(dir=folder.parent) as temporary:
        here = Judge(Path(sys.executable), "", {**os.environ, "MARIN_KEY": f"{folder.parent}/operator.key"})
        here.marin("init", "--json", folder=Path(temporary))
        here.marin("train", "--json", *recipe, *TWO_STEPS, folder=Path(temporary))
        shutil.copytree(temporary, folder)


def rows(
    versions: Sequence[str], folder: Path, *, trained: bool, recorded: Path = RECORDED
) -> Iterator[tuple[str, ...]]:
    """A row for each version; ``recorded``: the archive of a root in a folder `exact`."""
    with tarfile.open(recorded) as archive:
        archive.extractall(folder, filter="data")
    own = [(folder / name.replace(" ", "-"), recipe) for name, recipe in TRAINED.items() if trained]
    for root, recipe in own:
        train(root, recipe)
    seen: set[str] = set()
    for version in versions:
        try:
            judge = environment(folder, version)
        except RuntimeError as error:
            yield version, f"not installed: {error}", *[""] * (len(own) + 2)
            continue
        if judge.version in seen:  # the newest may be one of the others
            continue
        seen.add(judge.version)
        asked: list[Callable[[], str]] = [partial(known, judge), partial(verified, judge, folder / "exact")]
        asked += [partial(verified, judge, root / ".marin", "--only", "training") for root, _ in own]
        asked.append(partial(portable, judge))
        answers = [_answer(ask) for ask in asked]
        yield judge.version, *answers


def _answer(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except RuntimeError as error:
        return f"not judged: {error}"


def line(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def main() -> None:
    """Judge, print, and write the table where that is asked."""
    parser = argparse.ArgumentParser(prog="python -m bench.compilers", description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument(
        "--recorded", type=Path, default=RECORDED, metavar="ARCHIVE", help="the run, as tests/golden has others"
    )
    parser.add_argument("--folder", type=Path, help="keep environments, and what they compiled, there")
    parser.add_argument("--trained", action="store_true", help=f"judge {', '.join(TRAINED)} too")
    parser.add_argument("--write", type=Path, help="a page that has the table between its two marks")
    options = parser.parse_args()
    if options.write and BEGIN not in options.write.read_text("utf-8"):
        parser.error(f"{options.write} has no {BEGIN}")
    head = (*HEAD[:3], *TRAINED, HEAD[3]) if options.trained else HEAD
    table = [line(head), line(["---"] * len(head))]
    good = True
    with TemporaryDirectory(prefix="marin-compilers-") as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        sys.stdout.write("\n".join(table) + "\n")
        for row in rows(options.versions, folder, trained=options.trained, recorded=options.recorded):
            table.append(line(row))
            sys.stdout.write(table[-1] + "\n")
            sys.stdout.flush()
            good = good and row[1] == "all" and all(cell.startswith("PASS") for cell in row[2:-1])
    if options.write:
        before, _, rest = options.write.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        options.write.write_text(f"{before}{BEGIN}\n" + "\n".join(table) + f"\n{END}{after}", encoding="utf-8")
    sys.exit(not good)


if __name__ == "__main__":
    main()
