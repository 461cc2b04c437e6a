"""Parsers of foreign bytes of this plugin, which tests/fuzz tries."""

from marin.plugins.unlearning.attribution.groups import read_groups
from tests.fuzz.parsers import Parser, given, on_file

PARSERS = [
    Parser(
        "documents left out together",
        on_file(read_groups, "groups.jsonl"),
        given(b'["0a1b2c3d", "4e5f6071"]\n["8293a4b5"]\n', b'"0a1b2c3d"\n'),
        ("marin.plugins.unlearning.attribution.groups.read_groups",),
    )
]
