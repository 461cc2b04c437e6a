"""Arrow without pandas, in a command of ours."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


def leave_out_pandas() -> None:
    """Keep Arrow from importing pandas in this process, 50 MB that a collection has no use for.

    Of what it makes an array of, Arrow asks whether it is a series of pandas, and imports pandas to know it. It asks once: where
    pandas is not to be had then, nothing is a series. A table still becomes a frame (``to_pandas``). Where pandas is imported
    already nothing changes; and only a process that gives Arrow no series may call this.
    """
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
