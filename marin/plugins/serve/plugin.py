"""What this plugin adds: the commands ``generate`` and ``serve``."""

from marin.cli.lazy import Lazy

COMMANDS = {
    "generate": Lazy(
        "marin.plugins.serve.commands.generate",
        "Print what a recorded state of RUN says after a text, by the arithmetic contract of its recipe.",
    ),
    "serve": Lazy(
        "marin.plugins.serve.commands.serve",
        "Serve a recorded state of RUN by the OpenAI interface: completions, chats, log-likelihoods, streams.",
    ),
}
