"""What is compiled, where compiled programs are kept, and what the compiler needed for it."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

import jax


def use_compilation_cache(folder: Path) -> None:
    """Keep compiled programs in ``folder``, keyed by program, flags and compiler: the same program is the same code. The smallest
    too: it is read sooner than compiled."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def give_back_memory() -> None:
    """Return to the system what a compiler in threads has freed, or what made a state: hundreds of MiB, in arenas that no train
    step uses (glibc)."""
    with suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)
