"""Gather and scatter of NumPy arrays, one window at a time: the slow and obvious form of what XLA's manual defines.

Settings are those of a program's operations: ``window`` (axes of the result that run over a window), ``dropped`` (axes of
the operand that a window has size one in), ``indexed`` (axes of the operand that an index names), ``batch`` with
``index_batch`` (axes that operand and indices share), ``sizes`` of a window, and ``mode``: ``clip`` moves a window
inside, ``fill`` leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

type Settings = Mapping[str, Any]


def windows(
    shape: Sequence[int], index: np.ndarray, sizes: Sequence[int], settings: Settings
) -> Iterator[tuple[tuple[int, ...], list[int], bool]]:
    """Of each index: its place among the indices, where its window begins in an operand of ``shape``, and whether the
    window lies inside; with ``clip`` it always does."""
    for place in np.ndindex(*index.shape[:-1]):
        start = [0] * len(shape)
        for number, axis in enumerate(settings["indexed"]):
            start[axis] = int(index[(*place, number)])
        for axis, index_axis in zip(settings["batch"], settings["index_batch"], strict=True):
            start[axis] = place[index_axis]
        highest = [length - size for length, size in zip(shape, sizes, strict=True)]
        inside = all(0 <= at <= last for at, last in zip(start, highest, strict=True))
        if settings["mode"] == "clip":
            start, inside = [min(max(at, 0), last) for at, last in zip(start, highest, strict=True)], True
        yield place, start, inside


def _window(start: Sequence[int], sizes: Sequence[int], settings: Settings) -> tuple[Any, ...]:
    """What indexes the operand for one window, without the axes that a window has no extent in."""
    gone = {*settings["dropped"], *settings["batch"]}
    return tuple(
        at if axis in gone else slice(at, at + size) for axis, (at, size) in enumerate(zip(start, sizes, strict=True))
    )


def _place(place: tuple[int, ...], rank: int, window: Sequence[int]) -> tuple[Any, ...]:
    """What indexes the result (the updates) for one index: its own axes where they are no window's."""
    own = iter(place)
    return tuple(slice(None) if axis in window else next(own) for axis in range(rank))


def gather(operand: np.ndarray, index: np.ndarray, shape: tuple[int, ...], settings: Settings) -> np.ndarray:
    """The windows of ``operand`` at ``index``; ``fill`` in the settings is the word for those that are left out."""
    result = np.zeros(shape, operand.dtype)
    if settings["mode"] == "fill":
        word = np.asarray([settings["fill"]], np.uint32)
        result[...] = word.astype(bool)[0] if operand.dtype == bool else word.view(operand.dtype)[0]
    for place, start, inside in windows(operand.shape, index, settings["sizes"], settings):
        if inside:
            found = operand[_window(start, settings["sizes"], settings)]
            result[_place(place, result.ndim, settings["window"])] = found
    return result


def scatter(
    operand: np.ndarray, index: np.ndarray, updates: np.ndarray, settings: Settings, *, add: bool
) -> np.ndarray:
    """``operand`` with its windows at ``index`` replaced by ``updates``, or added to."""
    result = operand.copy()
    gone = {*settings["dropped"], *settings["batch"]}
    extents = iter(updates.shape[axis] for axis in settings["window"])
    sizes = [1 if axis in gone else next(extents) for axis in range(operand.ndim)]
    for place, start, inside in windows(operand.shape, index, sizes, settings):
        if inside:
            where, one = _window(start, sizes, settings), updates[_place(place, updates.ndim, settings["window"])]
            result[where] = result[where] + one if add else one
    return result
