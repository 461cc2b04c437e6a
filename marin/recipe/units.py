"""Bytes and seconds as people read them. Machines get the numbers."""

from __future__ import annotations

HOUR = 3600.0


def human_size(count: float) -> str:
    """A number of bytes: 17 B, 1.9 MB."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def human_time(seconds: float) -> str:
    """A time in seconds: 45 s, 12 min, 3.4 h, 2.1 d."""
    for limit, unit, name in ((90.0, 1.0, "s"), (5400.0, 60.0, "min"), (172_800.0, HOUR, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}" if name != "h" else f"{seconds / unit:.1f} {name}"
    return f"{seconds / 86_400:.1f} d"


def duration(seconds: float) -> str:
    """How long something took: ``43.9 s``, ``2 min 7 s``, ``3 h 20 min``. :func:`human_time` is for what is estimated."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes} min {left} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
