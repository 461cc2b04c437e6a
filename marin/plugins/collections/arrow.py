"""Arrow without pandas and with the memory of the C library, in a command of ours."""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder


def take_less_memory() -> None:
    """Keep Arrow from importing pandas in this process, 50 MB that a collection has no use for, and from setting memory aside.

    Of what it makes an array of, Arrow asks whether it is a series of pandas, and imports pandas to know it. It asks once: where
    pandas is not to be had then, nothing is a series. A table still becomes a frame (``to_pandas``). Where pandas is imported
    already nothing changes; and only a process that gives Arrow no series may call this.

    Its first allocator, mimalloc, holds 33 MB more than the C library's where a collection takes 9 at a time. Arrow reads the
    variable once, and what this process starts inherits it.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas(MetaPathFinder):
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("left out", name=name)
