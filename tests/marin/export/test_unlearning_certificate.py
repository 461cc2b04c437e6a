"""No certificate, and no claim, for a part of a training that was made before or elsewhere: it may have read the documents."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from marin.data.exclusion import not_excluded_from
from marin.errors import UsageError
from marin.export.unlearning import statement
from marin.recipe.schema import Recipe

ONE = "sha256:" + "1" * 64
WITHOUT = msgspec.structs.replace(Recipe(), exclude=("a-document",))
ADOPTED = msgspec.structs.replace(WITHOUT, tokenizer=msgspec.structs.replace(WITHOUT.tokenizer, artifact=ONE))
PHASE = msgspec.structs.replace(WITHOUT, phase=cast(Any, SimpleNamespace()))


@pytest.mark.parametrize(("recipe", "told"), [(ADOPTED, "made elsewhere"), (PHASE, "phases before")])
def test_what_was_made_before_or_elsewhere_has_none(recipe: Recipe, told: str) -> None:
    assert told in " ".join(not_excluded_from(recipe))
    run = SimpleNamespace(run="abcd2345", recipe=recipe)
    with pytest.raises(UsageError, match=told):
        statement(cast(Any, None), cast(Any, None), cast(Any, run))


def test_a_training_that_was_made_without_them_from_the_start_says_nothing_of_the_kind() -> None:
    assert not_excluded_from(WITHOUT) == ()
