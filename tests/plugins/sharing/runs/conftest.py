"""A real run of three small steps, and one that takes two of them over."""

from tests.marin.verify.conftest import recorded, root

__all__ = ["recorded", "root"]
