"""What this plugin adds: the commands ``data``."""

from __future__ import annotations

from marin.cli.lazy import Lazy

COMMANDS = {
    "data": Lazy(
        "marin.plugins.collections.command",
        "Build collections of documents from raw sources, and ask what became of each document.",
    )
}
