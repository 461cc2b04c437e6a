"""`python -m bench.house.without [PLUGIN...]`: the tree without a plugin's folders, checked as the whole tree is.

For each plugin the committed tree is copied, `marin/plugins/NAME` and `tests/plugins/NAME` are removed, and the targets are made
there (`--targets "lint test repro"`), then `marin verify latest` where `repro` is one of them. Exit status 1 when one fails.
`--drawn N`: so many of them, drawn by the commit.
"""

from __future__ import annotations

import argparse
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


def plugins() -> list[str]:
    """The plugins of this tree."""
    return sorted(path.name for path in PLUGINS.iterdir() if (path / "plugin.py").is_file())


def drawn(count: int) -> list[str]:
    """So many of the plugins, the same for each who asks at this commit."""
    head = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(head, cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    return sorted(plugins(), key=lambda name: sha256(f"{commit} {name}".encode()).digest())[:count]


def check(name: str, targets: list[str]) -> bool:
    """Whether the tree without this plugin passes."""
    with tempfile.TemporaryDirectory(prefix=f"marin-without-{name}-") as place:
        folder = Path(place) / "tree"
        data = subprocess.run(["git", "archive", "HEAD"], cwd=PROJECT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=BytesIO(data)) as archive:
            archive.extractall(folder, filter="data")
        for removed in (f"marin/plugins/{name}", f"tests/plugins/{name}"):
            shutil.rmtree(folder / removed)
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", f"without {name}"]):
            author = ["-c", "user.name=Marin", "-c", "user.email=marin@localhost"]
            subprocess.run(["git", *author, *command], cwd=folder, check=True)
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


def main() -> int:
    """Check each plugin that was named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plugins", nargs="*", metavar="PLUGIN")
    parser.add_argument("--targets", default="lint test repro")
    parser.add_argument("--drawn", type=int, metavar="N")
    given = parser.parse_args()
    names = given.plugins or (plugins() if given.drawn is None else drawn(given.drawn))
    passed = {name: check(name, given.targets.split()) for name in names}
    sys.stdout.writelines(f"without {name}: {'passed' if ok else 'FAILED'}\n" for name, ok in passed.items())
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
