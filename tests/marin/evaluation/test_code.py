from __future__ import annotations

from marin.evaluation.code import deciding
from marin.recipe.schema import Recipe
from marin.work.code import code_of

SCORING = "marin/evaluation/scoring.py"


def test_the_code_of_a_number_is_all_that_its_file_executes() -> None:
    found = deciding([SCORING], Recipe())
    assert {*code_of([SCORING]), "marin/process/arithmetic.py"} <= {*found}
    assert "marin/training/experts/models.py" in found, "a mixture's log-likelihoods are computed there"
