"""`python -m bench.house.without [PLUGIN...]`: the tree without a plugin's folders, checked as the whole tree is.

For each plugin the committed tree is copied, `marin/plugins/NAME` and `tests/plugins/NAME` are removed, and the targets are made
there (`--targets "lint test repro"`), then `marin verify latest` where `repro` is one of them. Exit status 1 when one fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

from bench.house.gauges import PLUGINS, PROJECT


def plugins() -> list[str]:
    """The plugins of this tree."""
    return sorted(path.name for path in PLUGINS.iterdir() if (path / "plugin.py").is_file())


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
    given = parser.parse_args()
    passed = {name: check(name, given.targets.split()) for name in given.plugins or plugins()}
    sys.stdout.writelines(f"without {name}: {'passed' if ok else 'FAILED'}\n" for name, ok in passed.items())
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
