"""What this plugin adds: the commands ``compare``, ``experiment`` and ``speedrun``."""

from __future__ import annotations

from marin.cli.lazy import Lazy

COMMANDS = {
    "compare": Lazy(
        "marin.plugins.lab.commands.compare",
        "Hold runs against each other: a sweep, an experiment, or any that you name.",
    ),
    "experiment": Lazy(
        "marin.plugins.lab.commands.experiment",
        "Begin and preregister experiments, and hold their runs against what was registered.",
    ),
    "speedrun": Lazy("marin.plugins.lab.commands.speedrun", "Keep a leaderboard on which every score was replayed."),
}
