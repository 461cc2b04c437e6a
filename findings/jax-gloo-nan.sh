#!/usr/bin/env bash
# Over two processes of CPUs jnp.max of an array with NaN is NaN or a number, by the process that has the NaN and by the place in the array, and so is
# jnp.min: jax sums up processes by gloo there, whose maximum is std::max(a, b), which is a where the comparison is false, and a ring cuts an array by
# ranks, so of eight maxima the NaN of one process is in four, and that of the other in the other four; a single maximum has it from the first process
# alone. In one process it is NaN (question 346). torch's all_reduce(MAX) by gloo does the same (question 588). Sums and jnp.any(jnp.isnan(x)) are
# right, so these are what a guard against divergence should ask.
#
#   bash findings/jax-gloo-nan.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-gloo-nan.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "jax==$version" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
cat > main.py <<'PYTHON'
import socket
import subprocess
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

EXPECTED = {  # the process that has NaN, the length: how many maxima and minima are NaN, whether the maximum of all is
    (0, 1): (1, 1, True),
    (1, 1): (0, 0, False),
    (0, 8): (4, 4, True),
    (1, 8): (4, 4, False),
}


def ask(process, address):
    """The two processes' program: a row each, one of them NaN, and the maximum and minimum over both."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, process)
    mesh = Mesh(np.array(jax.devices()), ("process",))
    whole = NamedSharding(mesh, PartitionSpec())
    reduced = jax.jit(lambda x: (jnp.max(x, 0), jnp.min(x, 0), jnp.max(x), jnp.any(jnp.isnan(x))), out_shardings=whole)
    changed = []
    for (broken, length), expected in EXPECTED.items():
        rows = np.full((2, length), 5.0, np.float32)
        rows[broken] = np.nan
        array = jax.make_array_from_callback(rows.shape, NamedSharding(mesh, PartitionSpec("process")), lambda place, rows=rows: rows[place])
        largest, least, top, guard = (np.asarray(one.addressable_data(0)) for one in reduced(array))
        seen = int(np.isnan(largest).sum()), int(np.isnan(least).sum()), bool(np.isnan(top))
        if process == 0:
            print(f"  process {broken} has NaN: {seen[0]} of {length} maxima and {seen[1]} minima are NaN; of all {top}; any(isnan) {guard}")
        if seen != expected or not guard:
            changed.append(f"process {broken}, {length}: {seen}, {guard}")
    return changed


if len(sys.argv) == 1:
    print(f"jax {version('jax')}, two processes of CPUs by gloo, Python {sys.version.split()[0]}", flush=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = [subprocess.Popen([sys.executable, __file__, str(rank), address], stderr=subprocess.DEVNULL) for rank in (0, 1)]
    statuses = [process.wait(600) for process in processes]
    print("as described" if statuses == [0, 0] else "CHANGED")
    sys.exit(max(statuses))
changed = ask(int(sys.argv[1]), sys.argv[2])
print("\n".join(changed), end="", flush=True)
sys.exit(1 if changed else 0)
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" main.py
