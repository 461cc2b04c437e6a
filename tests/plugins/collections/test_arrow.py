"""What a build keeps out of memory: of Arrow's neighbours those that it does not use."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from marin.plugins.collections.arrow import take_less_memory
take_less_memory()
import numpy as np, pyarrow as pa
assert pa.default_memory_pool().backend_name == "system"
arrays = pa.array([1, None]), pa.array(np.arange(2)), pa.array([b"a", b"b"], pa.binary(1))
assert "pandas" not in sys.modules, "Arrow imported it"
frame = pa.table(dict(zip("abc", arrays))).to_pandas()
assert frame["b"].tolist() == [0, 1] and type(frame).__module__.startswith("pandas")
take_less_memory()
assert sys.modules["pandas"] is not None, "what is there stays there"
"""


def test_arrow_makes_arrays_without_pandas_and_frames_with_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
