#!/usr/bin/env bash
# equinox.filter_jit holds 1, 1.0 and True for one static argument: the second call runs the program that was compiled for the first, and
# returns its dtype. What a call returns depends on which call came before. jax.jit with static_argnums tells the three apart, though it
# too holds 0.0 and -0.0 for one.
#
#   bash findings/equinox-equal-statics.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, one or two minutes), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-0.13.8}
folder=$(mktemp -d "${TMPDIR:-/tmp}/equinox-equal-statics.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "equinox==$version" "jax==0.11.2" "jaxlib==0.11.2" "numpy==2.5.5" >&2
cd "$folder"
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import equinox as eqx
import jax
import jax.numpy as jnp

print(f"equinox {version('equinox')}, jax {version('jax')}, Python {sys.version.split()[0]}")
x = jnp.arange(1, 4)


def scale(x, factor):
    return x * factor


def sign_of(x, factor):
    return jnp.copysign(x.astype(jnp.float32), factor)


def jit(function):
    return jax.jit(function, static_argnums=1)


def results(wrap, function, factors):
    compiled = wrap(lambda x, factor: function(x, factor))  # a new function: programs are kept by function
    outputs = [compiled(x, factor) for factor in factors]
    return [f"{factor!r} -> {out.dtype} {out.tolist()}" for factor, out in zip(factors, outputs, strict=True)]


changed = []
for label, function, factors, of_filter_jit, of_jit in (
    ("x * factor", scale, [1, 1.0, True], False, True),
    ("x * factor", scale, [1.0, 1, True], False, True),
    ("copysign(x, factor)", sign_of, [0.0, -0.0], False, False),
):
    each = [line for factor in factors for line in results(eqx.filter_jit, function, [factor])]
    together, by_jax = results(eqx.filter_jit, function, factors), results(jit, function, factors)
    print(f"{label}, x = {x.tolist()} of {x.dtype}, one call after the other")
    for name, lines in (("filter_jit", together), ("jax.jit", by_jax), ("each alone", each)):
        print(f"  {name + ':':12}{'; '.join(lines)}")
    if (together == each, by_jax == each) != (of_filter_jit, of_jit):
        changed.append(f"{label}, {factors}: other statics share a program")
print("\n".join(["CHANGED", *changed]) if changed else "as described")
sys.exit(1 if changed else 0)
PYTHON
