"""Shapes of a machine that must give the same bits."""

from __future__ import annotations

from typing import Any

WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"devices": 2},
    {"devices": 8},
    {"devices": 4, "tensor": 2},
    {"devices": 8, "resume_at": [2], "moves": [1]},
)
"""1, 2 and 8 devices, two that share each matrix, and 8 devices that stop after two steps and go on as one."""
