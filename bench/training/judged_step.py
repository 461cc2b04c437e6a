"""A train step of published programs without a compiler: JavaScript (the browser's judge, in node) beside the NumPy reference.

    python -m bench.training.judged_step FOLDER [--times N]

FOLDER is a publication, or a root, with the programs of a run under profile exact (``programs/``). Both execute the gradient and
the update of one train step on the same drawn values, one after the other, N times; every bit of what they give is compared.
Times are of the processor: the least of N, and of JavaScript the first too, which has to be compiled. Memory is the peak of node.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from marin.plugins.exact import reference
from marin.plugins.exact.program import Form, Operation, Program

JUDGE = Path(__file__).parents[2] / "marin/plugins/sharing/judge/check.mjs"
SCRIPT = """
import { readFileSync, writeFileSync } from "node:fs";
import * as judge from "JUDGE";
const told = JSON.parse(readFileSync(0, "utf8"));
const kinds = { float32: Float32Array, int32: Int32Array, uint32: Uint32Array, bool: Uint8Array };
const array = (dtype, file) => {
  const bytes = new Uint8Array(readFileSync(file));
  return judge.ruled(new kinds[dtype](bytes.buffer, 0, bytes.length / kinds[dtype].BYTES_PER_ELEMENT));
};
const constants = new Map(told.constants.map(([digest, dtype, file]) => [digest, array(dtype, file)]));
const spent = [];
for (const { program, inputs, out } of told.programs) {
  const given = inputs.map(([dtype, file]) => array(dtype, file));
  let found = null;
  const own = [];
  for (let n = 0; n < told.times; n++) {
    const began = process.cpuUsage();
    found = await judge.execute(program, given, constants);
    const { user, system } = process.cpuUsage(began);
    own.push((user + system) / 1e6);
  }
  spent.push(own);
  found.forEach((one, n) => writeFileSync(out[n], new Uint8Array(one.buffer, one.byteOffset, one.byteLength)));
}
process.stdout.write(JSON.stringify({ spent, peak: process.resourceUsage().maxRSS }));
"""


def read(plain: Mapping[str, Any], constants: Path) -> Program:
    """A program of its plain form."""

    def constant(number: int, digest: str) -> tuple[int, np.ndarray]:
        dtype, shape = plain["forms"][number]
        return number, np.fromfile(constants / digest.removeprefix("sha256:"), dtype).reshape(shape)

    return Program(
        forms=tuple(Form(dtype, tuple(shape)) for dtype, shape in plain["forms"]),
        inputs=tuple(plain["inputs"]),
        constants=tuple(constant(number, digest) for number, digest in plain["constants"]),
        operations=tuple(
            Operation(name, tuple(used), tuple(made), settings, tuple(read(body, constants) for body in bodies))
            for name, used, made, settings, bodies in plain["operations"]
        ),
        outputs=tuple(plain["outputs"]),
    )


def step_programs(folder: Path) -> list[dict[str, Any]]:
    """The gradient and the update of a folder of programs: those that take something, the one that takes whole numbers first."""
    found = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json")) if len(file.stem) == 64]
    takes = [one for one in found if one["inputs"]]
    return sorted(
        takes, key=lambda one: not any(one["forms"][n][0] == "int32" and one["forms"][n][1] for n in one["inputs"])
    )


def drawn(program: Program, rows: int) -> list[np.ndarray]:
    """A value for each input: small numbers, and tokens below ``rows``."""
    draw = np.random.default_rng(0)
    made = []
    for form in program.of(program.inputs):
        if form.dtype == "float32":
            made.append((draw.random(form.shape) * 0.04 - 0.02).astype(np.float32) if form.shape else np.float32(1))
        else:
            made.append(draw.integers(0, max(rows, 1), form.shape).astype(form.dtype))
    return [np.asarray(one) for one in made]


def numpy_step(
    programs: Sequence[Program], given: Sequence[Sequence[np.ndarray]], times: int
) -> tuple[list[list[float]], list[list[bytes]]]:
    """Seconds of the processor for each program, each time, and the bytes that it gives."""
    spent, made = [], []
    for program, inputs in zip(programs, given, strict=True):
        own: list[float] = []
        found: Sequence[np.ndarray] = ()
        for _ in range(times):
            began = time.process_time()
            found = reference.run(program, inputs)
            own.append(time.process_time() - began)
        spent.append(own)
        made.append([np.ascontiguousarray(one).tobytes() for one in found])
    return spent, made


def node_step(
    plain: Sequence[Mapping[str, Any]],
    programs: Sequence[Program],
    given: Sequence[Sequence[np.ndarray]],
    constants: Path,
    times: int,
) -> tuple[list[list[float]], list[list[bytes]], float]:
    """The same by the browser's judge, and the peak of its memory in MiB."""
    with tempfile.TemporaryDirectory(prefix="marin-step-") as base:

        def kept(name: str, value: np.ndarray) -> list[str]:
            np.ascontiguousarray(value).tofile(Path(base) / name)
            return [str(value.dtype), f"{base}/{name}"]

        known = {
            digest: body["forms"][number][0]
            for one in plain
            for body in _bodies(one)
            for number, digest in body["constants"]
        }
        told: dict[str, Any] = {
            "times": times,
            "constants": [
                [digest, dtype, str(constants / digest.removeprefix("sha256:"))] for digest, dtype in known.items()
            ],
            "programs": [
                {
                    "program": one,
                    "inputs": [kept(f"{number}-in-{n}", value) for n, value in enumerate(values)],
                    "out": [f"{base}/{number}-out-{n}" for n in range(len(one["outputs"]))],
                }
                for number, (one, values) in enumerate(zip(plain, given, strict=True))
            ],
        }
        command = [
            shutil.which("node") or "node",
            "--input-type=module",
            "--eval",
            SCRIPT.replace("JUDGE", JUDGE.as_uri()),
        ]
        done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, check=True)
        answer = json.loads(done.stdout)
        made = [[Path(file).read_bytes() for file in one["out"]] for one in told["programs"]]
    return answer["spent"], made, answer["peak"] / 1024


def _bodies(plain: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [plain, *(inner for one in plain["operations"] for body in one[4] for inner in _bodies(body))]


def main() -> int:
    """Print a row for each program, and one for the step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    constants = asked.folder / "programs/constants"
    plain = step_programs(asked.folder / "programs")
    programs = [read(one, constants) for one in plain]
    vocabulary = max((form.shape[0] for form in programs[0].of(programs[0].inputs) if len(form.shape) == 2), default=1)
    given = [drawn(one, vocabulary if number == 0 else 1) for number, one in enumerate(programs)]
    slow, ours = numpy_step(programs, given, asked.times)
    fast, theirs, peak = node_step(plain, programs, given, constants, asked.times)
    assert ours == theirs, "other bits"
    sys.stdout.write("| program | NumPy, s | JavaScript, s: first | again |\n| --- | --- | --- | --- |\n")
    rows = [(min(one), two[0], min(two)) for one, two in zip(slow, fast, strict=True)]
    rows.append((sum(row[0] for row in rows), sum(row[1] for row in rows), sum(row[2] for row in rows)))
    for name, row in zip(("gradient", "update", "the train step"), rows, strict=True):
        sys.stdout.write(f"| {name} | {' | '.join(f'{one:.3f}' for one in row)} |\n")
    sys.stdout.write(f"every bit the same; peak of node {peak:.0f} MiB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
