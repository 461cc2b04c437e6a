"""Pictures of pages: the browser that draws them, and the form in which Git has them."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
"""Of the Chromium."""


def keep(path: Path, picture: Image.Image, *, most: int) -> int:
    """The picture in as many bytes as it has to have: below ``most`` where a coarser one has fewer. How many they are."""
    data = io.BytesIO()
    for quality in range(80, 10, -10):
        data = io.BytesIO()
        picture.save(data, "WEBP", quality=quality, method=6)
        if len(data.getvalue()) < most:
            break
    return path.write_bytes(data.getvalue())
