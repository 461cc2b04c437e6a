"""Parsers of foreign bytes of this plugin, which tests/fuzz tries."""

from marin.plugins.sharing.dossier.stated import read_card
from tests.fuzz.parsers import Parser, given, on_file

PARSERS = [
    Parser(
        "a card of a model",
        on_file(read_card),
        given(b"model:\n  name: a\ndata.language: [en]\ndate: 2026-11-23\n"),
        ("marin.plugins.sharing.dossier.stated.read_card",),
        2000,
        500,
    )
]
