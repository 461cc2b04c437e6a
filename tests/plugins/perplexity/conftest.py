"""A tiny model over bytes that is asked."""

from tests.marin.evaluation.conftest import RECIPE, compiled_once, scorer, subject

__all__ = ["RECIPE", "compiled_once", "scorer", "subject"]
