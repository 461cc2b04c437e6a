"""The judge of published folders in node (check.mjs), for the tests of it, which skip where there is no node."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import marin.plugins.sharing.judge

NODE = shutil.which("node") or ""
PROGRAM = Path(marin.plugins.sharing.judge.__file__).with_name("check.mjs")
needs_node = pytest.mark.skipif(not NODE, reason="there is no node on the path")


@dataclass(frozen=True)
class Checked:
    """What the judge said of a folder."""

    status: int
    report: dict[str, Any]
    error: str = ""

    def outcome(self, verdict: str) -> str:
        return str(self.report["verdicts"][verdict]["outcome"])

    @property
    def outcomes(self) -> list[str]:
        return [self.outcome(name) for name in ("signature", "record", "hash")]

    @property
    def said(self) -> str:
        """Every line of every verdict that is not PASS."""
        told = self.report["verdicts"].values()
        return "\n".join(line for one in told if one["outcome"] != "PASS" for line in one["lines"])


def checked(
    folder: Path | str, *keys: object, witnesses: tuple[object, ...] = (), run: str = "", execute: str = "one"
) -> Checked:
    """The judge's report of ``folder``, or its error."""
    command = [NODE, str(PROGRAM), str(folder), "--json", *(f"--vkey={key}" for key in keys)]
    command += [*(f"--witness={key}" for key in witnesses), *([f"--run={run}"] if run else []), f"--execute={execute}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode == 2:
        return Checked(2, {}, done.stderr)
    assert done.stdout, done.stderr
    return Checked(done.returncode, json.loads(done.stdout))


WITH_OR_WITHOUT = pytest.mark.parametrize("options", [(), ("--noexpose-wasm",)], ids=["WebAssembly", "none"])
"""Options of node: the arithmetic by kernels, and by JavaScript alone."""


def evaluated(script: str, *, given: str = "", options: tuple[str, ...] = ()) -> Any:
    """What an expression of the judge's own parts gives, as JSON. ``given``: on the standard input, as ``given`` there."""
    text = (
        f'import {{ readFileSync }} from "node:fs"; import * as judge from "{PROGRAM.as_uri()}";'
        f'const given = readFileSync(0, "utf8"); process.stdout.write(JSON.stringify(await ({script})()));'
    )
    command = [NODE, *options, "--input-type=module", "--eval", text]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
