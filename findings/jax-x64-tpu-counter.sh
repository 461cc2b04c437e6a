#!/usr/bin/env bash
# Where 64-bit types are enabled, jax counts the turns of lax.scan in int64, whatever the loop computes. A TPU has no such numbers:
# libtpu carries the counter as two words of uint32 and compares both. So in the optimised text of a float32 program the loop's limit is a
# u32 constant beside an s32 zero (of the sign of the upper word), where it is an s32 constant without; and no trip count is noted either
# way. A tool that reads costs from that text, and looks for the s32 that a loop is compared with, finds 0 turns: all that is in the
# loops, collectives too, counts for nothing. No TPU is needed to see it.
#
#   bash findings/jax-x64-tpu-counter.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, 221 MB of them libtpu, a minute), prints the versions and what it
# sees. Exit status 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.11.2}
folder=$(mktemp -d "${TMPDIR:-/tmp}/jax-x64-tpu-counter.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "jax[cpu]==$version" "jaxlib==$version" "libtpu==0.0.48.1" "numpy==2.4.6" >&2
cd "$folder"
export JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 TPU_WORKER_HOSTNAMES=localhost TPU_ACCELERATOR_TYPE=v5p-8 TPU_MIN_LOG_LEVEL=3
"$folder/venv/bin/python" - 2>/dev/null <<'PYTHON'
import re
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

TURNS = 37
print(f"jax {version('jax')}, libtpu {version('libtpu')}, Python {sys.version.split()[0]}")
chip = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]
x = jax.ShapeDtypeStruct((128, 128), jnp.float32, sharding=SingleDeviceSharding(chip))


def loop(x):
    return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ carry), None), x, length=TURNS)[0]


seen = {}
for wide in (False, True):
    with jax.enable_x64(wide):
        text = jax.jit(loop).lower(x).compile().as_text()
    limits = re.findall(rf"= (\w+)\[\]\S* constant\({TURNS}\)", text)
    (carried,) = re.findall(r"= \((.*?)\) while\(", text)
    words = len(re.findall(r"[us]32\[\]", carried))
    seen[wide] = (limits, "known_trip_count" in text)
    print(f"  64-bit types {'enabled' if wide else 'not enabled'}: {TURNS} is {' and '.join(limits)}; "
          f"{words} whole numbers are carried; a trip count is {'' if seen[wide][1] else 'not '}noted")
as_described = seen == {False: (["s32"], False), True: (["u32"], False)}
print("as described" if as_described else "CHANGED")
sys.exit(not as_described)
PYTHON
