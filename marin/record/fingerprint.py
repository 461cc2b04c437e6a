"""The digest that ``train.segment`` has for each train step. Pure."""

from __future__ import annotations

import hashlib
import struct


def step_fingerprint(loss: float, norm: float, tensors: bytes) -> str:
    """``sha256:`` over one train step's loss and gradient norm (float32) and the fingerprints of all tensors after it
    (uint32[tensors, 2]), all little-endian.

    Raises:
        OverflowError: loss or norm is beyond float32.
    """
    return "sha256:" + hashlib.sha256(struct.pack("<ff", loss, norm) + tensors).hexdigest()
