"""Which files hold the tensors of a Hugging Face folder: those that transformers takes, and nothing of what lies beside them.

``model.safetensors`` where it is there, whatever an index says (an old one may lie beside it); else what the index names
(``_get_resolved_checkpoint_files`` in modeling_utils.py). Other formats hold programs, and are not read.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
MOST_HEADER = 100_000_000
"""Bytes of the description in a safetensors file, as its own library bounds it."""


def tensor_files(folder: Path) -> list[str]:
    """The files with the tensors: one, or those that the index names.

    Raises:
        ValueError: the index cannot be read, or names files elsewhere.
    """
    if (folder / ONE).is_file() or not (folder / INDEX).is_file():
        return [ONE]
    try:
        names = sorted({str(name) for name in json.loads((folder / INDEX).read_bytes())["weight_map"].values()})
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"an index without a weight_map: {type(error).__name__}") from None
    odd = [name for name in names if "/" in name or "\\" in name or not name.endswith(".safetensors")]
    if odd or not names:
        raise ValueError(f"an index that names {odd[0] if odd else 'nothing'!r}")
    return names


def indexed(folder: Path) -> bool:
    """Whether the index says which files count."""
    return not (folder / ONE).is_file() and (folder / INDEX).is_file()


def stored_width(folder: Path) -> int | None:
    """The inner width of a GPT-2's feed-forward as its tensors have it; None where they do not say."""
    try:
        for name in tensor_files(folder):
            with (folder / name).open("rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(size)) if size <= MOST_HEADER else {}
            for key, told in header.items():
                if key.endswith("h.0.mlp.c_fc.weight"):
                    return int(told["shape"][1])
    except (OSError, ValueError, struct.error, LookupError, TypeError, AttributeError, RecursionError):
        return None  # reading the tensors says what is wrong with them
    return None
