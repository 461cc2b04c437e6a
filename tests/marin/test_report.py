"""Tables and plots of experiments: the same bytes for the same numbers, and nothing of a text becomes markup."""

from __future__ import annotations

import csv
from pathlib import Path

from marin.reporting.experiment import Plot, Report


def report(title: str = "Sizes") -> Report:
    return Report(
        title,
        "Does it?",
        ["it does"],
        ("name", "n", "loss"),
        [("a", 1, 0.1), ("b,c", 2, 1 / 3)],
        Plot("Loss", "n", "loss", {"seeds": [(1.0, 0.1), (1.0, 0.3), (2.0, 1 / 3)]}, log_x=True, marks=(1.5,)),
    )


def test_the_same_numbers_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        report().write(tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["plot.png", "report.html", "report.md", "table.csv"]
    assert all((tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes() for name in files)
    assert (tmp_path / "one" / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_floats_read_back_equal(tmp_path: Path) -> None:
    report().write(tmp_path)
    rows = list(csv.reader((tmp_path / "table.csv").read_text(encoding="utf-8").splitlines()))
    assert rows[0] == ["name", "n", "loss"]
    assert [float(row[2]) for row in rows[1:]] == [0.1, 1 / 3]
    assert rows[2][0] == "b,c"


def test_the_page_loads_nothing_and_takes_no_markup(tmp_path: Path) -> None:
    report("<script>alert(1)</script>").write(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert 'src="data:image/png;base64,' in page
