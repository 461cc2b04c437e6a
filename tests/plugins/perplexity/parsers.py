"""Parsers of foreign bytes of this plugin, which tests/fuzz tries."""

from marin.plugins.perplexity.task import read
from tests.fuzz.parsers import Parser, given, on_file

PARSERS = [
    Parser("a text to measure", on_file(read), given(b"one two\n\nthree"), ("marin.plugins.perplexity.task.read",))
]
