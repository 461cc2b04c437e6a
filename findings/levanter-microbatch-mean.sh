#!/usr/bin/env bash
# A cut of Levanter's batch into microbatches (per_device_parallelism, a setting of memory) changes what is trained where rows have unequal
# numbers of counted tokens, as with masked prompts: loss and gradient are the mean of the microbatches' means and not the mean over the
# tokens of the batch. With equal masks the two are the same but for rounding. A change proposed upstream (marin-community/levanter#842) is open.
#
#   bash findings/levanter-microbatch-mean.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.2.227.dev40316220070}
folder=$(mktemp -d "${TMPDIR:-/tmp}/levanter-microbatch-mean.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "marin-haliax==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" "draccus==0.11.6" >&2
# Without its other dependencies: all that grad_accum imports is above.
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "marin-levanter==$version" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import equinox as eqx
import haliax as hax
import jax
import jax.numpy as jnp
import numpy as np
from levanter.grad_accum import microbatched

print(f"marin-levanter {version('marin-levanter')}, jax {version('jax')}, Python {sys.version.split()[0]}")
Batch, Pos = hax.Axis("batch", 4), hax.Axis("position", 16)
mapping = {"batch": "data"}
values = hax.named(jnp.asarray(np.random.default_rng(0).normal(size=(4, 16)), jnp.float32), (Batch, Pos))


def loss_of(weight, values, counted):
    """The mean over the counted places, as Levanter's models give it; no metrics."""
    return hax.mean((values - weight) ** 2, where=counted > 0).scalar(), {}


def gradient_of(counted, rows):
    """Loss and gradient of a batch, so many rows in a microbatch, by the function that Levanter's Trainer cuts with."""
    mask = hax.named(jnp.asarray(np.arange(16) < np.array(counted)[:, None], jnp.float32), (Batch, Pos))
    gradient = lambda values, mask: eqx.filter_value_and_grad(loss_of, has_aux=True)(jnp.float32(0.5), values, mask)
    with hax.partitioning.set_mesh(jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))):
        (loss, _), weight = eqx.filter_jit(microbatched(gradient, Batch, rows, mapping, mapping))(values, mask)
    return float(loss), float(weight)


changed = []
for name, counted in {"equal": [16, 16, 16, 16], "unequal": [1, 1, 16, 16]}.items():
    whole, cut = gradient_of(counted, 4), gradient_of(counted, 2)
    print(f"{name} numbers of counted tokens, {counted}")
    print(f"  four rows at once: loss {whole[0]:.6f}, gradient {whole[1]:.6f}; two at once: loss {cut[0]:.6f}, gradient {cut[1]:.6f}")
    if name == "equal":
        assert abs(whole[0] - cut[0]) < 1e-5 and abs(whole[1] - cut[1]) < 1e-5, "a cut of rows alike changes the rounding alone"
    elif abs(whole[0] - cut[0]) < 1e-3 or abs(whole[1] - cut[1]) < 1e-3:
        changed.append("the cut changes nothing")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
