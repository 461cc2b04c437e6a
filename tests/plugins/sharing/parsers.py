"""Parsers of foreign bytes of this plugin, which tests/fuzz tries."""

from marin.plugins.sharing.dossier.stated import read_card
from marin.plugins.sharing.pages.statement import NOBODY, Published, SignedPage, Statement, read_statement
from tests.fuzz.parsers import KEYS, SIGNER, Parser, given, on_file


def _statement() -> list[bytes]:
    page = SignedPage("a" * 64, "12", NOBODY)
    runs = {"2khr7ocq": Published("dossiers/a", "https://example.org/a")}
    return [Statement(SIGNER.verifier.name, {"index.html": page}, runs, before={"a.html": page}).signed(SIGNER)]


PARSERS = [
    Parser(
        "a card of a model",
        on_file(read_card),
        given(b"model:\n  name: a\ndata.language: [en]\ndate: 2026-11-23\n"),
        ("marin.plugins.sharing.dossier.stated.read_card",),
        2000,
        500,
    ),
    Parser(
        "what is signed of pages",
        lambda data: read_statement(data, KEYS),
        _statement,
        ("marin.plugins.sharing.pages.statement.read_statement",),
    ),
]
