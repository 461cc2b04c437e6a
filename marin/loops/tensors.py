"""The tensors of a training state, whichever library made them, by name: what a state's digest is of."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ledger import digest_bytes, state_digest, tensor_digest
from marin.errors import UsageError


def arrays(state: Any) -> dict[str, Any]:
    """The arrays of ``state`` by path: a mapping of names to NumPy, jax or torch tensors (a ``state_dict()``), nested
    mappings and sequences of them, plain numbers among them, or any pytree of jax.

    A torch tensor of bfloat16, which NumPy does not have, goes by its bits, under its name and ``:bfloat16``.

    Raises:
        UsageError: there is no array in it, something that is not one, or two of one name.
    """
    found: dict[str, Any] = {}
    for name, tensor in _leaves("", state):
        if name in found:
            raise UsageError(
                "two tensors of one name",
                where=f"state: {name}",
                expected="a name of its own for each tensor: names of nested mappings are joined by slashes",
                found="the name twice",
                cure="rename one of them",
            )
        found[name] = tensor
    if not found:
        raise UsageError(
            "a state without tensors",
            where="state",
            expected="a mapping of names to arrays, such as model.state_dict()",
            found=type(state).__name__,
            cure="leave the state out where there is none",
        )
    return found


def scalar(value: Any) -> float | None:
    """The number that a trainer logs, of Python, NumPy, jax or torch; None where it is another thing (a text, a histogram)."""
    if isinstance(value, bool | str | bytes) or len(getattr(value, "shape", ())) != 0:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def batch_digest(batch: Any) -> str:
    """The digest of what one train step saw: bytes, text, one array, or several by name or place.

    Raises:
        UsageError: it is not one of these.
    """
    if isinstance(batch, str):
        batch = batch.encode()
    if isinstance(batch, bytes | bytearray | memoryview):
        return digest_bytes(bytes(batch))
    found = arrays(batch)
    if list(found) == [""]:
        return tensor_digest(found[""])
    return state_digest({name: tensor_digest(values) for name, values in found.items()})


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    import numpy as np

    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(f"{path}/{name}" if path else str(name), item)
    elif isinstance(value, bool | int | float | np.generic):
        yield path, np.asarray(value)
    elif value is None or isinstance(value, str):
        return
    elif hasattr(value, "detach") and hasattr(value, "cpu"):
        yield _torch(path, value.detach().cpu().contiguous())
    elif hasattr(value, "dtype") and hasattr(value, "shape"):
        yield path, value
    elif isinstance(value, Sequence):
        for place, item in enumerate(value):
            yield from _leaves(f"{path}/{place}" if path else str(place), item)
    else:
        yield from _pytree(path, value)


def _torch(path: str, tensor: Any) -> tuple[str, Any]:
    kind = str(tensor.dtype).removeprefix("torch.")
    if kind == "bfloat16":
        return f"{path}:bfloat16", tensor.view(sys.modules["torch"].int16).numpy()
    return path, tensor.numpy()


def _pytree(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A module or another structure that jax knows. Anyone who gives one has imported jax."""
    jax = sys.modules.get("jax")
    leaves = jax.tree_util.tree_flatten_with_path(value)[0] if jax is not None else []
    if jax is None or (len(leaves) == 1 and leaves[0][1] is value):
        raise UsageError(
            "no tensor",
            where=path or "state",
            expected="arrays of NumPy, jax or torch, by name",
            found=type(value).__name__,
            cure="give tensors alone, such as model.state_dict()",
        )
    for keys, leaf in leaves:
        name = jax.tree_util.keystr(keys, simple=True, separator="/")
        yield from _leaves(f"{path}/{name}" if path else name, leaf)
