"""What this plugin adds: the command ``compile``."""

from marin.cli.lazy import Lazy

COMMANDS = {
    "compile": Lazy(
        "marin.plugins.scale.command",
        "Compile a recipe's train step for a slice of TPUs that is not here: does it fit, what would it cost.",
    )
}
