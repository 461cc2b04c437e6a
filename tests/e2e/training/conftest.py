"""What several files of this folder look at, made once."""

from tests.e2e.training.unlearned import unlearned

__all__ = ["unlearned"]
