"""`python -m bench.house.without [PLUGIN...]`: the tree without a plugin's folders, checked as the whole tree is.

The committed tree is copied once, with one environment. For each plugin `marin/plugins/NAME` and `tests/plugins/NAME` are
removed there, and the targets are made (`--targets "lint test repro"`), then `marin verify latest` where `repro` is one of
them. A plugin's verdict is printed when it is known. Exit status 1 when one fails. `--drawn N`: so many of them, drawn by
the commit. `--results FILE` keeps verdicts by commit and targets: a plugin that passed is not checked again. `ONE+OTHER`: the
tree without both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from bench.house.gauges import PLUGINS, PROJECT

KEPT = (".venv", ".mypy_cache", ".ruff_cache", "__pycache__")
"""What the next plugin's tree has of the one before: nothing that a check writes, but what it had to install and to compile."""


def plugins() -> list[str]:
    """The plugins of this tree."""
    return sorted(path.name for path in PLUGINS.iterdir() if (path / "plugin.py").is_file())


def commit() -> str:
    """Of the tree that is checked."""
    head = ["git", "rev-parse", "HEAD"]
    return subprocess.run(head, cwd=PROJECT, check=True, capture_output=True, text=True).stdout.strip()


def drawn(count: int) -> list[str]:
    """So many of the plugins, the same for each who asks at this commit."""
    return sorted(plugins(), key=lambda name: sha256(f"{commit()} {name}".encode()).digest())[:count]


def git(folder: Path, *arguments: str) -> None:
    """Git in a tree of this place, by nobody's name."""
    author = ["-c", "user.name=Marin", "-c", "user.email=marin@localhost"]
    subprocess.run(["git", *author, *arguments], cwd=folder, check=True)


def copied(folder: Path) -> None:
    """The committed tree, as a repository of its own."""
    data = subprocess.run(["git", "archive", "HEAD"], cwd=PROJECT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(data)) as archive:
        archive.extractall(folder, filter="data")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "whole")
    git(folder, "tag", "whole")
    if (PROJECT / ".mypy_cache").is_dir():
        shutil.copytree(PROJECT / ".mypy_cache", folder / ".mypy_cache")


def check(folder: Path, name: str, targets: list[str]) -> bool:
    """Whether the tree without this plugin, or without each of these, passes."""
    git(folder, "reset", "-q", "--hard", "whole")
    git(folder, "clean", "-fdxq", *(f"--exclude={kept}" for kept in KEPT))
    for plugin in name.split("+"):
        for removed in (f"marin/plugins/{plugin}", f"tests/plugins/{plugin}"):
            shutil.rmtree(folder / removed)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", f"without {name}")
    with tempfile.TemporaryDirectory(prefix=f"marin-without-{name}-") as place:
        own = {variable: str(Path(place) / variable) for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME")}
        environment = {
            key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "MARIN_ROOT")
        } | own
        commands = [["make", target] for target in ("environment", *targets)]
        if "repro" in targets:
            commands.append([".venv/bin/marin", "verify", "latest"])
        return all(
            subprocess.run(command, cwd=folder, env=environment, check=False).returncode == 0 for command in commands
        )


def say(line: str) -> None:
    """At once: what comes after it takes minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Check each plugin that was named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plugins", nargs="*", metavar="PLUGIN")
    parser.add_argument("--targets", default="lint test repro")
    parser.add_argument("--drawn", type=int, metavar="N")
    parser.add_argument("--results", type=Path, metavar="FILE")
    given = parser.parse_args()
    names = given.plugins or (plugins() if given.drawn is None else drawn(given.drawn))
    kept = json.loads(given.results.read_bytes()) if given.results and given.results.exists() else {}
    passed = kept.setdefault(f"{commit()} {given.targets}", [])
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="marin-without-") as place:
        folder = Path(place) / "tree"
        for number, name in enumerate(names, start=1):
            if name not in passed:
                if not folder.exists():
                    copied(folder)
                (passed if check(folder, name, given.targets.split()) else failed).append(name)
                if given.results:
                    given.results.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
            say(f"without {name}: {'FAILED' if name in failed else 'passed'} ({number} of {len(names)})")
    say(f"failed: {', '.join(failed) or 'no plugin'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
