"""What the documents of a source say of themselves: licences, signals against being used, and of when they are.

Signals are those that formats have places for: the robots meta element and header (RFC 9309 is about crawling and not here),
and TDMRep's reservation (W3C Community Group, 2024). They are counted and kept with each document; no default removes by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from marin.plugins.collections.document import Document, Scalar, encodable

UNKNOWN = "not stated"
OTHERS = "others"
MOST = 100
"""Different licences and signals that are counted by their names."""
SIGNALS = ("robots", "robots_header", "tdm_reservation", "tdm_header")
LINK = "rel=license"
LEFT_OUT = "left_out"


def licence(metadata: Mapping[str, Any]) -> str:
    """What a document says of its licence: in itself, or in the header that came with it (RFC 8288, relation ``license``)."""
    if said := metadata.get("licence") or metadata.get("license"):
        return encodable(str(said)[:200])
    for link in str(metadata.get("link_header", "")).split(","):
        if LINK in link.replace('"', "") and (target := link.partition("<")[2].partition(">")[0]):
            return encodable(target[:200])
    return UNKNOWN


def signals(metadata: Mapping[str, Scalar]) -> Iterable[str]:
    """Each directive of each signal, as ``robots: noai``."""
    for name in SIGNALS:
        for directive in str(metadata.get(name, "")).split(","):
            if said := directive.strip().lower()[:60]:
                yield encodable(f"{name}: {said}")


class Origin:
    """Counts over the documents of a slice or of a source."""

    def __init__(self) -> None:
        self._licences, self._signals, self._left = Counter[str](), Counter[str](), Counter[str]()
        self._documents = 0
        self._times: dict[str, list[str]] = {}

    def saw(self, document: Document) -> None:
        """One document more."""
        self._documents += 1
        _count(self._licences, licence(document.metadata))
        for signal in signals(document.metadata):
            _count(self._signals, signal)
        for name in document.left_out:
            _count(self._left, encodable(name[:200]))
        for name, time in (("added", document.added), ("created", document.created)):
            if time:
                known = self._times.setdefault(name, [time, time])
                known[0], known[1] = min(known[0], time), max(known[1], time)

    def add(self, said: Mapping[str, Any]) -> None:
        """What another one said (:meth:`said`), of the slice that comes next."""
        self._documents += int(said["documents"])
        for counter, name in ((self._licences, "licences"), (self._signals, "signals"), (self._left, LEFT_OUT)):
            for key, count in sorted(said.get(name, {}).items()):
                _count(counter, key, count)
        for name, (first, last) in said["times"].items():
            known = self._times.setdefault(name, [first, last])
            known[0], known[1] = min(known[0], first), max(known[1], last)

    def said(self) -> dict[str, Any]:
        """``documents``, ``licences`` and ``signals`` by name, the least and greatest of ``times`` by name, and of how many
        documents which fields were ``left_out``, where there are some."""
        left = {LEFT_OUT: dict(sorted(self._left.items()))} if self._left else {}
        return left | {
            "documents": self._documents,
            "licences": dict(sorted(self._licences.items())),
            "signals": dict(sorted(self._signals.items())),
            "times": {name: list(known) for name, known in sorted(self._times.items())},
        }


def _count(counter: Counter[str], name: str, count: int = 1) -> None:
    counter[name if name in counter or len(counter) < MOST else OTHERS] += count
