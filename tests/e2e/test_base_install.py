"""The base install judges ``artifacts`` in the words of the full one: what only extras bring is not there for it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

EXTRAS = (
    "jax",
    "jaxlib",
    "levanter",
    "haliax",
    "equinox",
    "transformers",
    "tokenizers",
    "safetensors",
    "datasets",
    "scipy",
    "dvc",
)
COMMAND = """
import sys
sys.modules.update(dict.fromkeys({absent}))
from marin.cli.main import main
sys.argv = ["marin", "-q", "verify", "latest", "--only", "artifacts", "--no-record", "--json"]
main()
"""


def artifacts(project: Project, absent: tuple[str, ...]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND.format(absent=absent)],
        cwd=project.folder,
        env=project.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return {"verdict": told["verdicts"]["artifacts"], "details": told["details"]["artifacts"]}


@pytest.mark.long
def test_the_same_words_with_and_without_extras(project: Project) -> None:
    full = artifacts(project, ())
    assert full["verdict"] == "PASS" and artifacts(project, EXTRAS) == full
    (shard, *_) = sorted(
        path for path in (project.root / "store").rglob("*") if path.is_file() and path.stat().st_size > 4000
    )
    shard.chmod(0o644)
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    full = artifacts(project, ())
    assert full["verdict"] == "FAIL" and artifacts(project, EXTRAS) == full
