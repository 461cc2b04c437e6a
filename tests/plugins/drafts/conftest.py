"""Programs are compiled once."""

from __future__ import annotations

from compiled_once import compiled_once

__all__ = ["compiled_once"]
