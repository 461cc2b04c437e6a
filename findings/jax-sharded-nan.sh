#!/usr/bin/env bash
# On CPUs jnp.max of an array that lies on several devices leaves out NaN, and so does jnp.min: over the devices of one process the result is never
# NaN, and over two processes it is by the process that has the NaN and by the place in the array. Each device has NaN for itself; what joins the
# devices begins at minus infinity and takes std::max(a, b), which is a where the comparison is false (ReduceHelper in XLA's
# in_process_communicator.cc), and over processes gloo takes std::max(x[i], y[i]) (gloo/math.h) in a ring that cuts an array by ranks, so of eight
# maxima the NaN of one process is in four, and that of the other in the other four. On one device it is NaN (question 346). torch's all_reduce(MAX)
# by gloo does as the processes do (question 588). Sums and jnp.any(jnp.isnan(x)) are right, so these are what a guard against divergence should ask.
#
#   bash findings/jax-sharded-nan.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, a minute), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-sharded-nan.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "jax==$version" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
cat > main.py <<'PYTHON'
import os
import socket
import subprocess
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

CASES = [(broken, length) for length in (1, 8) for broken in (0, 1)]  # which of the two devices has NaN, how many numbers each has
DEVICES = dict.fromkeys(CASES, (0, 0, False))  # how many maxima and minima are NaN, whether the maximum of all is
PROCESSES = {(0, 1): (1, 1, True), (1, 1): (0, 0, False), (0, 8): (4, 4, True), (1, 8): (4, 4, False)}


def ask(place, expected):
    """A row for each of two devices, one of the rows NaN, and the maximum and minimum over both."""
    mesh = Mesh(np.array(jax.devices()), ("device",))
    whole = NamedSharding(mesh, PartitionSpec())
    reduced = jax.jit(lambda x: (jnp.max(x, 0), jnp.min(x, 0), jnp.max(x), jnp.any(jnp.isnan(x))), out_shardings=whole)
    changed = []
    for broken, length in CASES:
        rows = np.full((2, length), 5.0, np.float32)
        rows[broken] = np.nan
        array = jax.make_array_from_callback(rows.shape, NamedSharding(mesh, PartitionSpec("device")), lambda cut, rows=rows: rows[cut])
        largest, least, top, guard = (np.asarray(one.addressable_data(0)) for one in reduced(array))
        seen = int(np.isnan(largest).sum()), int(np.isnan(least).sum()), bool(np.isnan(top))
        if jax.process_index() == 0:
            print(f"  {place} {broken} has NaN: {seen[0]} of {length} maxima and {seen[1]} minima are NaN; of all {top}; any(isnan) {guard}")
        if seen != expected[broken, length] or not guard:
            changed.append(f"{place} {broken}, {length}: {seen}, {guard}")
    return changed


def start(*arguments, devices=1):
    environment = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    return subprocess.Popen([sys.executable, __file__, *arguments], env=environment, stderr=subprocess.DEVNULL)


if len(sys.argv) == 1:
    print(f"jax {version('jax')}, CPU, Python {sys.version.split()[0]}", flush=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    statuses = [start("devices", devices=2).wait(600)]
    statuses += [process.wait(600) for process in [start(rank, address) for rank in "01"]]
    print("as described" if not any(statuses) else "CHANGED" if max(statuses) == 1 else "no answer")
    sys.exit(max(statuses) if min(statuses) >= 0 else 2)
if sys.argv[1] == "devices":
    changed = ask("device", DEVICES)
else:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[2], 2, int(sys.argv[1]))
    changed = ask("process", PROCESSES)
print("".join(line + chr(10) for line in changed), end="", flush=True)
sys.exit(1 if changed else 0)
PYTHON
JAX_PLATFORMS=cpu "$folder/venv/bin/python" main.py
