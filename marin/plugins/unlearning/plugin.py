"""What this plugin adds: the commands ``unlearn`` and ``attribute``."""

from marin.cli.lazy import Lazy

COMMANDS = {
    "unlearn": Lazy(
        "marin.plugins.unlearning.commands.unlearn",
        "Make RUN again without documents, in equal bits to training from the start without them.",
    ),
    "attribute": Lazy(
        "marin.plugins.unlearning.commands.attribute",
        "Train RUN again without each of some documents, and measure exactly what its losses would be.",
    ),
}
