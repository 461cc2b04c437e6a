"""What is compiled in this process, kept in the user's cache of compiled programs by content: most tests compile what
another one, or the last session, compiled. Each program is executed all the same."""

from __future__ import annotations

import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from marin.process.cache import compilation_cache
from marin.training.runtime.compilation import use_compilation_cache


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> None:
    """Programs that take long to compile, and small ones too: each operation outside of a program is one."""
    use_compilation_cache(compilation_cache())
    reset_cache()  # jax looks for the folder at its first compilation, which another folder's test may have made
