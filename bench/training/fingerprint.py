"""How fast the fingerprint reads: GB/s over one large tensor and over many small ones, compiled, under the contract.

python -m bench.training.fingerprint [--mib 256]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from bench.figure import Figure, best_seconds
from marin.process.arithmetic import apply
from marin.recipe.schema import Arithmetic, Execution


def measure(mib: int) -> Iterator[Figure]:
    """Fingerprints of ``mib`` MiB of float32, whole and in pieces of 64 KiB."""
    apply(Arithmetic(), Execution())
    import jax

    from marin.training.step import fingerprint

    program = jax.jit(fingerprint.program)
    whole = jax.random.normal(jax.random.key(0), (mib << 18,))
    for what, tensors in (
        ("one tensor", [whole]),
        ("64 tensors of 64 KiB", list(whole[: 64 << 14].reshape(64, 1 << 14))),
    ):
        size = sum(tensor.nbytes for tensor in tensors)
        jax.block_until_ready(program(tensors))

        def call(tensors: list[jax.Array] = tensors) -> None:
            jax.block_until_ready(program(tensors))

        best = best_seconds(call, rounds=7)
        yield Figure(f"fingerprint of {what}, {size >> 20} MiB", size / best / 1e9, "GB/s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=256)
    for figure in measure(parser.parse_args().mib):
        sys.stdout.write(f"{figure}\n")


if __name__ == "__main__":
    main()
