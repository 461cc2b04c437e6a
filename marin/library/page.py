"""A page of a run: shown in a notebook, written to a file, or sent to a user. It loads nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from marin.reporting.template import render


@dataclass(frozen=True)
class Page:
    """One self-contained HTML document."""

    title: str
    html: bytes

    def save(self, path: str | Path) -> Path:
        """Write it to a file; returns where."""
        target = Path(path)
        target.write_bytes(self.html)
        return target

    def __repr__(self) -> str:
        return f"<{self.title}: a page of {len(self.html)} bytes; .save('page.html') writes it>"

    def _repr_html_(self) -> str:
        """In a frame of its own, in which nothing of the notebook can be reached."""
        return render("frame.html.j2", title=self.title, page=self.html.decode()).decode()
