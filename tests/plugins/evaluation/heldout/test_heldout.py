"""Held-out text: windows as the harness has them, bits per byte that no tokenizer and no library decides."""

from __future__ import annotations

import json
import math
from decimal import Decimal, localcontext

import pytest

from ledger import Store
from marin.errors import DataError
from marin.evaluation.scoring import Scorer
from marin.evaluation.subject import Subject
from marin.plugins.evaluation.heldout.measuring import (
    encode_texts,
    measure_sets,
    numbers_of,
    plain_tokenizer,
    score,
    texts_of,
    windows,
)
from tests.ledger.memory import MemoryStorage

TEXTS = ["the dog runs", "é" * 70 + " end", "x"]
DATA = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in TEXTS)


@pytest.mark.evaluation
@pytest.mark.parametrize("length", [4, 7, 64])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 13, 64, 65])
def test_every_token_is_predicted_once_in_the_harnesss_windows(count: int, length: int) -> None:
    from lm_eval import utils

    tokens = list(range(1, count + 1))
    rolled = map(utils.make_disjoint_window, utils.get_rolling_token_windows(tokens, 0, length, context_len=1))
    assert [(list(row.tokens), row.scored) for row in windows(tokens, length)] == [
        ([*before, *after], len(after)) for before, after in rolled
    ]


def test_windows_cover_a_document() -> None:
    rows = windows([1, 2, 3, 4, 5], 2)
    assert [token for row in rows for token in row.tokens[-row.scored :]] == [1, 2, 3, 4, 5]
    assert max(len(row.tokens) for row in rows) <= 3 and rows[0].tokens[0] == 0


def test_what_is_measured_follows_from_state_and_text(subject: Subject, scorer: Scorer) -> None:
    store = Store(MemoryStorage())
    body = measure_sets(subject, scorer, store, {"own": DATA, "twice": DATA})
    one = body.sets["own"]
    assert one == body.sets["twice"] and store.read(one.data) == DATA
    assert (one.documents, one.bytes) == (3, sum(len(text.encode()) for text in TEXTS))
    assert one.tokens == one.bytes, "the tokenizer of this test has a token for each byte"
    again = measure_sets(subject, scorer.holding(subject.model), store, {"own": DATA})
    assert again.sets["own"] == one
    # independently: one row a token, in floating point of the sum's own accuracy
    tokenizer = plain_tokenizer(subject)
    documents = encode_texts(tokenizer, TEXTS)
    total = math.fsum(value for row in score(scorer, documents).values() for value in row)
    assert float.fromhex(one.numbers["loss"]) == pytest.approx(-total / one.tokens, rel=1e-12)
    assert float.fromhex(one.numbers["perplexity"]) == pytest.approx(math.exp(-total / one.tokens), rel=1e-12)
    assert float.fromhex(one.numbers["bits_per_byte"]) == pytest.approx(-total / math.log(2) / one.bytes, rel=1e-12)


def test_bits_per_byte_is_the_nearest_float() -> None:
    with localcontext(prec=80):
        exact = Decimal("1000.125") / (Decimal(7) * Decimal(2).ln())
    assert numbers_of([-1000.0, -0.125], 7)["bits_per_byte"] == float(exact).hex()
    assert numbers_of([0.0], 7) == {"loss": "0x0.0p+0", "perplexity": (1.0).hex(), "bits_per_byte": "0x0.0p+0"}


def test_a_special_token_in_a_text_is_text(subject: Subject) -> None:
    (tokens,) = encode_texts(plain_tokenizer(subject), ["<|endoftext|>"])
    assert 0 not in tokens


@pytest.mark.parametrize("line", [b"[]", b'{"text": 3}', b"{", b'{"text": ""}', b'{"text": "\\ud800"}', b"\xff"])
def test_what_is_no_document_is_refused_by_its_line(line: bytes) -> None:
    with pytest.raises(DataError, match="own, line 2"):
        texts_of(b'{"text": "a"}\n' + line, "own")
