"""Fixtures of the core's tests that plugins' tests take too."""

from tests.marin.cli.conftest import marin, root, run
from tests.marin.conftest import own_keys, project, tiny, tiny_module

__all__ = ["marin", "own_keys", "project", "root", "run", "tiny", "tiny_module"]
