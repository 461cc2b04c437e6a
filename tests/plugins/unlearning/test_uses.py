"""Which train steps read a document, against the batches themselves, looked at one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marin.errors import DataError, UsageError
from marin.plugins.unlearning.request import check_uses
from marin.recipe.schema import Recipe, from_mapping
from marin.tensors.token_caches import MASK_FILE
from marin.training.inspection.batch import batch_at
from marin.training.inspection.uses import Use, Uses, uses
from marin.training.tokens.building import write_cache

SMALL: dict[str, Any] = {
    "model": {"hidden_dim": 8, "intermediate_dim": 8, "num_layers": 1, "num_heads": 1, "num_kv_heads": 1, "seq_len": 8},
    "trainer": {"batch_size": 2, "num_steps": 9},
    "arithmetic": {"logical_shards": 1},
}


def recipe(**changes: Any) -> Recipe:
    return from_mapping(SMALL | changes, where="test")


def cache(folder: Path, lengths: list[int], seed: int = 0) -> Path:
    generator = np.random.default_rng(seed)
    write_cache(folder, (generator.integers(1, 50, length, dtype=np.int32) for length in lengths))
    return folder


@pytest.mark.long
@pytest.mark.parametrize("mixed", [False, True])
def test_the_steps_are_those_whose_batches_hold_it(tmp_path: Path, mixed: bool) -> None:
    lengths = [3, 20, 1, 9, 30, 8, 16, 5]
    if mixed:
        part = {"kind": "grammar"}
        changes = {
            "dataset": {"kind": "mixture", "parts": {"a": part | {"name": "a"}, "b": part | {"name": "b"}}},
            "mixture": {"weights": {"a": 1.0, "b": 2.0}, "block_size": 6},
        }
        one = recipe(**changes)
        parts = ["a", "b"]
        for number, name in enumerate(parts):
            cache(tmp_path / name, lengths, number)
    else:
        one, parts = recipe(), [""]
        cache(tmp_path, lengths)
    wanted = [(part, number) for part in parts for number in range(len(lengths))]
    found = uses(one, tmp_path, wanted)
    for use in found.documents:
        holds = []
        for step in range(one.trainer.num_steps):
            for sequence in batch_at(one, tmp_path, step)[0]:
                inside = use.number in sequence.documents and (not use.part or use.part == sequence.part)
                holds += [step] if inside else []
        assert use.steps == tuple(sorted(set(holds))), use
    assert found.emptied == 0, "without any document nothing is left of the first batch"


def test_the_first_batch_of_which_nothing_is_left(tmp_path: Path) -> None:
    cache(tmp_path, [48, 48])  # six sequences each: without the first document, batches of that one alone are empty
    one = recipe()
    first = uses(one, tmp_path, [("", 0)])
    empty = [s for s in range(9) if all(x.documents == range(1) for x in batch_at(one, tmp_path, s)[0])]
    assert first.emptied == (empty[0] if empty else None)
    assert uses(one, tmp_path, []).emptied is None


def test_what_is_not_learned_anyway_leaves_a_batch_empty_sooner(tmp_path: Path) -> None:
    cache(tmp_path, [48, 48])
    (tmp_path / MASK_FILE).write_bytes(bytes([1] * 48 + [0] * 48))  # a chat in which the second says nothing learned
    assert uses(recipe(), tmp_path, [("", 0)]).emptied == 0


def checked(*documents: tuple[int, ...], emptied: int | None = None) -> None:
    found = tuple(Use("", number, 0, 8, steps) for number, steps in enumerate(documents))
    ids = [f"id{number}" for number in range(len(found))]
    check_uses("abc", recipe(), ids, Uses(found, emptied), ids)


def test_a_document_that_no_step_read_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a document that no train step read: id1: .*in none of 9 batches"):
        checked((3,), ())


def test_of_a_source_one_document_has_to_have_been_read() -> None:
    found = tuple(Use("", number, 0, 8, steps) for number, steps in enumerate([(), (4,)]))
    check_uses("abc", recipe(), ["id0", "id1"], Uses(found, None), ["id1"])
    with pytest.raises(UsageError, match="a document that no train step read: id0"):
        check_uses("abc", recipe(), ["id0"], Uses(found[:1], None), [])


def test_a_document_that_every_step_read_is_refused() -> None:
    with pytest.raises(UsageError, match=r"a document that every train step read: id0: .*all of 9 batches"):
        checked(tuple(range(9)), (3,))


def test_an_exclusion_that_empties_a_batch_is_refused() -> None:
    with pytest.raises(DataError, match=r"an exclusion empties a batch: train step 7"):
        checked((3, 7), emptied=7)
    checked((3, 7))
