"""Programs of exact arithmetic are compiled once."""

from programs import compiled_once

__all__ = ["compiled_once"]
