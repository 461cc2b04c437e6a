#!/usr/bin/env bash
# A program that jax.export kept costs its next process an import of scipy.linalg when it is first called on a CPU, whatever is in it: x + 1
# too. Some 90 modules of SciPy are loaded, for the addresses of BLAS and LAPACK that a custom call might need; jax.jit of the same
# function loads not one of them, nor does deserialize(). So a process that is to begin quickly by an exported program (no tracing, XLA's code from the
# compilation cache) waits longest for SciPy: 0.3 to 0.5 seconds here, where reading and compiling a small model takes 0.1.
#
#   bash findings/jax-export-scipy.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-export-scipy.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "jax[cpu]==$version" "jaxlib==$version" "scipy==1.18.1" "numpy==2.4.6" "flatbuffers==25.12.19" >&2
cd "$folder"
export JAX_PLATFORMS=cpu
"$folder/venv/bin/python" - <<'PYTHON'
import jax
from jax import export

exported = export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct((3,), "float32"))
open("program", "wb").write(exported.serialize())
PYTHON
"$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
from jax import export

print(f"jax {version('jax')}, scipy {version('scipy')}, Python {sys.version.split()[0]}")


def loaded():
    return "scipy.linalg" in sys.modules, sum(name.partition(".")[0] == "scipy" for name in sys.modules)


x, seen = jnp.zeros(3), {}
jax.jit(lambda x: x + 1)(x)
seen["after jit"] = loaded()
program = export.deserialize(bytearray(open("program", "rb").read()))
seen["after deserialize"] = loaded()
print("  a custom call in the program:", "custom_call" in program.mlir_module())
assert (program.call(x) == 1).all()
seen["after the first call"] = loaded()
for name, (linalg, count) in seen.items():
    print(f"  {name}: scipy.linalg {'is' if linalg else 'is not'} loaded, {count} modules of scipy")
as_described = [linalg for linalg, _ in seen.values()] == [False, False, True] and seen["after the first call"][1] > 50
print("as described" if as_described else "CHANGED")
sys.exit(not as_described)
PYTHON
