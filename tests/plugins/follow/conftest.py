"""The honest run that forgeries begin with."""

from tests.adversary.conftest import base, stall, trained, warm

__all__ = ["base", "stall", "trained", "warm"]
