"""Parsers of foreign bytes of this plugin, which tests/fuzz tries."""

from marin.plugins.rl.prompts import read_stored
from marin.plugins.rl.record import first_difference, read_record
from tests.fuzz.parsers import Parser, given

RECORD = (
    b'{"completions":[{"advantage":"0x1.0p-1","logprobs":"000080bf","reference":"","reward":"0x1.0p+0","text":"a","tokens":[7]}],'
    b'"prompts":[{"index":2,"number":0,"tokens":[0,5]}],"update":0}'
)


def compared(data: bytes) -> None:
    """As a judge reads what is stored."""
    read_record(data)
    first_difference(data, RECORD)


def stored_prompts(data: bytes) -> None:
    """As a replay reads them."""
    read_stored(data, "regular_expression", where="prompts")


QUESTIONS = b'{"answer":"19","prompt":"12+7="}\n{"answer":"b.*","prompt":[{"content":"a","role":"user"}]}\n'
PARSERS = [
    Parser("completions of an update", compared, given(RECORD), ("marin.plugins.rl.record.read_record",)),
    Parser("prompts of an objective", stored_prompts, given(QUESTIONS), ("marin.plugins.rl.prompts.read_stored",)),
]
