"""What is compiled, and where compiled programs are kept."""

from __future__ import annotations

from pathlib import Path

import jax


def use_compilation_cache(folder: Path) -> None:
    """Keep compiled programs in ``folder``, keyed by program, flags and compiler: the same program is the same code."""
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
