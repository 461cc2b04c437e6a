"""Runs held against each other, as frames and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marin.library.page import Page
from marin.provenance.extras import DRAWING, need
from marin.provenance.plugins import load_plugin

if TYPE_CHECKING:
    import pandas


class Comparison:
    """What `marin compare` says of some runs. ``verdict`` is ``exploratory`` unless an experiment was registered beforehand
    that asked for it."""

    def __init__(self, compared: Any) -> None:
        self._compared = compared

    @property
    def verdict(self) -> str:
        """``exploratory``, ``confirmatory`` or ``incomplete``."""
        return str(self._compared.verdict)

    @property
    def varied(self) -> list[str]:
        """The keys of the recipe that differ among the runs, the seed last."""
        return list(self._compared.varied.keys)

    @property
    def runs(self) -> pandas.DataFrame:
        """One row a run that counts: its group, what differs, its numbers. Raises NotInstalled without pandas."""
        found = self._compared
        rows = [
            {
                "run": run,
                "group": group.name,
                **{key: _as_number(found.varied.values[run][key]) for key in found.varied.keys},
                **found.values[run],
            }
            for group in found.groups
            for run in group.runs
        ]
        return _frame(rows).set_index("run")

    @property
    def groups(self) -> pandas.DataFrame:
        """One row for each group and number: ``n``, ``mean``, ``sd`` over seeds, ``least``, ``greatest``, and why it cannot
        be compared, where it cannot."""
        return _frame(
            [
                {
                    "group": group.name,
                    "number": metric,
                    "n": told.n,
                    "mean": told.mean,
                    "sd": told.sd,
                    "least": told.least,
                    "greatest": told.greatest,
                    "not_comparable": ", ".join(group.beside.get(metric, ())),
                }
                for group in self._compared.groups
                for metric, told in group.summaries.items()
            ]
        )

    @property
    def differences(self) -> pandas.DataFrame:
        """One row for each group but the baseline and each number: the difference, its 95% interval, and the test."""
        return _frame(
            [
                {
                    "number": item.metric,
                    "group": item.arm,
                    "against": item.baseline,
                    "difference": item.difference,
                    "low": item.interval[0] if item.interval is not None else None,
                    "high": item.interval[1] if item.interval is not None else None,
                    "pairs": item.pairs,
                    "test": item.test,
                    "p": item.p,
                    "p_holm": item.p_holm,
                    "registered": (item.metric, item.arm) in self._compared.registered,
                    "exploratory": self._compared.is_exploratory(item),
                }
                for item in self._compared.differences
            ]
        )

    @property
    def importance(self) -> pandas.DataFrame:
        """One row for each key and number: the share of the number's spread that goes with the key."""
        return _frame(
            [
                {"number": metric, "key": one.key, "share": one.share, "values": one.values}
                for metric, ones in self._compared.importance.items()
                for one in ones
            ]
        )

    def page(self) -> Page:
        """The same with pictures: curves, a number over each key, all keys at once."""
        need(*DRAWING)
        drawn: bytes = load_plugin("marin.pages", "compared", "the page of a comparison")(self._compared)
        return Page(f"{self._compared.title}, compared", drawn)

    def __repr__(self) -> str:
        found = self._compared
        return f"<{found.title}: {len(found.groups)} groups by {', '.join(self.varied) or 'nothing'}, {self.verdict}>"

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()


def _as_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _frame(rows: list[dict[str, Any]]) -> pandas.DataFrame:
    need("pandas")
    import pandas

    return pandas.DataFrame(rows)
