#!/usr/bin/env bash
# all_reduce(MAX) and all_reduce(MIN) of torch's gloo backend lose NaN or keep it, by the rank that has it and by the place in the tensor: with NaN on
# the first of two ranks a scalar's maximum is NaN, with NaN on the second it is the number of the first. Of a thousand elements half are NaN either
# way. gloo compares by std::max(a, b), which is a where the comparison is false, and a ring cuts the tensor by ranks. torch.max of the same numbers
# is NaN. So a loss or a flag that is reduced by MAX to find a diverged rank finds half of them. All ranks get the same.
#
#   bash findings/gloo-max-nan.sh [VERSION]
#
# Installs the published packages into a temporary folder (Python 3.12, minutes, and some GB where torch brings CUDA), prints the versions and what it sees. Exit status
# 0: as described; 1: the behaviour has changed; another: it could not be tried.
set -euo pipefail

version=${1:-2.13.0}
folder=$(mktemp -d "${TMPDIR:-/tmp}/gloo-max-nan.XXXXXX")
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv" >&2
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "torch==$version" "numpy==2.4.6" >&2
cd "$folder"
cat > main.py <<'PYTHON'
import math
import sys
import tempfile
from importlib.metadata import version
from multiprocessing import get_context

import torch
import torch.distributed as dist

OPERATIONS = {"MAX": dist.ReduceOp.MAX, "MIN": dist.ReduceOp.MIN}


def reduce_all(rank, meeting, answers):
    """Both reductions, of one element and of a thousand, with NaN on either rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    seen = {}
    for broken in (0, 1):
        for name, operation in OPERATIONS.items():
            for length in (1, 1000):
                numbers = torch.full((length,), math.nan if rank == broken else 5.0)
                dist.all_reduce(numbers, op=operation)
                seen[broken, name, length] = int(numbers.isnan().sum())
    dist.destroy_process_group()
    answers.put(seen)


if __name__ == "__main__":
    print(f"torch {version('torch')}, gloo, two ranks, Python {sys.version.split()[0]}")
    context = get_context("spawn")
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=reduce_all, args=(rank, f"{folder}/meeting", answers)) for rank in (0, 1)]
        for process in ranks:
            process.start()
        first, second = answers.get(timeout=300), answers.get(timeout=300)
        for process in ranks:
            process.join()
    changed = [] if first == second else ["the ranks disagree"]
    for (broken, name, length), count in first.items():
        print(f"  {name} of {length:4} elements, NaN on rank {broken}: {count} are NaN")
        if count != (500 if length == 1000 else 1 - broken):
            changed.append(f"{name}, {length}, rank {broken}: {count}")
    print("\n".join(["CHANGED", *changed]) if changed else "as described")
    sys.exit(1 if changed else 0)
PYTHON
"$folder/venv/bin/python" main.py
