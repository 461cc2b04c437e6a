"""Where matplotlib looks for its list of fonts."""

from __future__ import annotations

import logging
import os

from marin.process.cache import cache_folder


def use_font_cache() -> None:
    """matplotlib's list of fonts lies here and not among the user's settings, and is made without a word of the library's among
    ours. Called before matplotlib is imported."""
    os.environ.setdefault("MPLCONFIGDIR", str(cache_folder() / "matplotlib"))
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
