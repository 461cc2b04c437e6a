"""Programs of exact arithmetic are compiled once."""

from compiled_once import compiled_once

__all__ = ["compiled_once"]
