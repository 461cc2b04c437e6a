"""What is compiled, where compiled programs are kept, and what the compiler needed for it."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

import jax
from jax._src import distributed


def use_compilation_cache(folder: Path) -> None:
    """Keep compiled programs in ``folder``, keyed by program, flags and compiler: the same program is the same code. The
    small ones too: there are dozens, and to read one takes a tenth of the time.

    Of several processes that train as one, JAX lets number 0 alone write. That fits a folder that all machines share;
    this one is its machine's, and on processors each process has keys of its own, so that the others compiled
    everything again whenever they were started. JAX asks for the number at this one place after devices are found.
    """
    if jax.process_index() > 0:
        distributed.global_state.process_id = 0
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def give_back_memory() -> None:
    """Return to the system what a compiler in threads has freed: hundreds of MiB, in arenas that no train step uses
    (glibc)."""
    with suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)
