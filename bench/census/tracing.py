"""Runs a training of torch and writes each operation: its name, digests of its operands and of its results.

    python bench/census/tracing.py OUT FILE ARGUMENT...

Executed in the training's environment by bench/census/naming.py. On a processor the backward pass is executed by the
thread that asks for it, so its operations are seen too.
"""

from __future__ import annotations

import hashlib
import runpy
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def digest(value: Any) -> str:
    shape = "x".join(map(str, value.shape))
    if value.device.type != "cpu" or value.layout != torch.strided:
        return f"{value.layout}:{shape}"
    data = value.detach().contiguous().view(torch.uint8) if value.dim() else value.detach().reshape(1).view(torch.uint8)
    return f"{hashlib.sha1(data.numpy().tobytes()).hexdigest()[:12]}:{shape}"  # noqa: S324


def tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


class Tracing(TorchDispatchMode):
    def __init__(self, out: Any) -> None:
        super().__init__()
        self.out = out

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C._DisableTorchDispatch():
            operands = [digest(tensor) for tensor in tensors([args, kwargs or {}])]
            made = function(*args, **(kwargs or {}))
            results = [digest(tensor) for tensor in tensors(made)]
        if "empty" not in str(function):
            self.out.write(f"{function}\t{' '.join(operands)}\t{' '.join(results)}\n")
        return made


out, file, *arguments = sys.argv[1:]
sys.argv = [file, *arguments]
with open(out, "w") as log, Tracing(log):
    runpy.run_path(file, run_name="__main__")
