from __future__ import annotations

from msgspec.structs import replace

from marin.evaluation.code import deciding
from marin.recipe.schema import Recipe
from marin.work.code import code_of

SCORING = "marin/evaluation/scoring.py"


def test_the_code_of_a_number_is_all_that_its_file_executes() -> None:
    found = deciding([SCORING], Recipe())
    assert {*code_of([SCORING]), "marin/process/arithmetic.py"} <= {*found}
    experts = "marin/training/experts/models.py"
    assert experts not in found
    sparse = replace(
        Recipe(), model=replace(Recipe().model, architecture="mixtral", num_experts=4, num_experts_per_tok=2)
    )
    assert experts in deciding([SCORING], sparse), "a mixture's log-likelihoods are computed there"
