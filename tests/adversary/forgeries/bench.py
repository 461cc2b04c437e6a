"""Forging and judging: each kind in a copy of its own, one after the other in this process."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from marin.process.text import visible
from marin.record.verdicts import NAMES
from tests.adversary.forgeries.registry import CLASSES, KINDS, Kind
from tests.adversary.forgeries.stranger import Seen, look, visit
from tests.adversary.forgeries.workshop import Base, Shop

How = Literal["honest", "refused", "claimed", "without effect", "passes", "elsewhere", "broken"]
GOOD: tuple[How, ...] = ("honest", "refused", "claimed", "without effect", "elsewhere")


@dataclass(frozen=True)
class Row:
    """One forgery and what came of it. ``how``: ``refused`` by the verdict that has to, ``elsewhere`` by another one or
    with other words, only ``claimed``, ``without effect``, or it ``passes``; ``broken``: the workshop's own failure."""

    number: int
    kind: str
    by: str
    how: How
    said: str
    seconds: float

    @property
    def good(self) -> bool:
        """Nobody would believe it."""
        return self.how in GOOD


def judged(base: Base, kinds: Iterable[Kind], *, alone: bool = False) -> Iterator[Row]:
    """Forge each kind and have it verified; ``alone``: by the verdict alone that has to notice."""
    for kind in kinds:
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="forged-", dir=base.folder))
        try:
            how, said = _one(base, kind, folder, alone)
        except Exception as error:  # the workshop's own: a kind that is no forgery any more is to be seen
            how, said = "broken", f"{type(error).__name__}: {error}"
        yield Row(
            kind.number, kind.name, kind.by, how, shortened(said.replace(str(folder), "ROOT")), time.monotonic() - began
        )
        discard(folder)


def _one(base: Base, kind: Kind, folder: Path, alone: bool) -> tuple[How, str]:
    shop = Shop(base, getattr(base, kind.of), folder)
    if kind.asked.before:
        look(shop)
    kind.forge(shop)
    if kind.by == "operator" and not shop.signed:
        shop.sign()
    try:
        seen = visit(shop, kind.verdict, kind.asked, alone=alone)
    except Exception as error:  # verification must end in words
        return "passes", f"the verifier breaks: {type(error).__name__}: {error}"
    return _judge(kind, shop, seen)


def _judge(kind: Kind, shop: Shop, seen: Seen) -> tuple[How, str]:
    outcome = seen.outcomes.get(kind.verdict, "no verdict")
    first = next((line for line in seen.said.splitlines() if line), "")
    told = f"{kind.verdict} {outcome}: {first}" if seen.outcomes else seen.error
    if kind.honest:
        return ("honest", "five times PASS") if seen.passes else ("broken", told)
    if kind.proof is not None and not kind.proof(shop):
        return "passes", f"it had its effect; {told}"
    if raw := sorted({letter for letter in seen.printed if letter != "\n" and not letter.isprintable()}):
        return "passes", f"printed as they are: {', '.join(f'U+{ord(letter):04X}' for letter in raw)}"
    lines = [line for told_of in seen.lines.values() for line in told_of]
    if kind.unsaid and (line := next((x for x in lines if kind.unsaid in x and "claimed" not in x), None)):
        return "passes", line
    if seen.passes:
        named = next((line for line in seen.claimed if kind.claimed and kind.claimed in line), None)
        if named is not None:
            return "claimed", f"claimed by this log: {named}"
        return ("without effect", "what passes is true") if kind.harmless else ("passes", "PASS")
    if not seen.outcomes:
        return ("refused" if kind.says in seen.error else "elsewhere"), seen.error
    if outcome == "PASS":
        other = next(name for name in NAMES if seen.outcomes.get(name) != "PASS")
        return "elsewhere", f"{other} {seen.outcomes[other]}: {first}"
    if outcome in kind.outcomes and kind.says in seen.said:
        line = next((line for line in seen.said.splitlines() if kind.says in line and line), first)
        return "refused", f"{kind.verdict} {outcome}: {line}"
    return "elsewhere", told


def shortened(text: str) -> str:
    """In one line of a table."""
    plain = visible(" ".join(text.split()))
    return plain if len(plain) <= 150 else plain[:147] + "..."


def discard(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


def chosen(only: str | None, numbers: Collection[int] | None, sample: int | None, seed: int) -> list[Kind]:
    """The kinds that are asked for, by class. A sample is a function of the seed and the names."""
    import random

    found = sorted(KINDS.values(), key=lambda kind: kind.number)
    found = [
        kind for kind in found if (numbers is None or kind.number in numbers) and (only is None or only in kind.name)
    ]
    if sample is not None and sample < len(found):
        drawn = set(random.Random(seed).sample([kind.name for kind in found], sample))
        found = [kind for kind in found if kind.name in drawn]
    return found


def table(rows: Iterable[Row], names: Collection[str], before: str = "") -> str:
    """A row for each of these names as Markdown, by class; one that was not judged now stays as it was in the table
    ``before``, if it was there."""
    found = {name: line for line in before.splitlines() if (name := named_in(line)) in names}
    found |= {row.kind: _line(row) for row in rows}
    lines = sorted((found[name] for name in names if name in found), key=lambda line: int(line.split()[1]))
    counts = Counter(line.split(" | ")[3] for line in lines)
    total = ", ".join(f"{count} {how}" for how, count in counts.items())
    head = ("| class | forged | by | what came of it | what the stranger was told |", "| --- | --- | --- | --- | --- |")
    end = f"{len(lines)} kinds: {total}. One again: `python -m tests.adversary.forgeries --only NAME`."
    return "\n".join([*head, *lines, "", end]) + "\n"


def named_in(line: str) -> str:
    """The kind that a line of a table is about; "" where it is about none."""
    parts = line.split(" | ")
    return parts[1] if len(parts) >= 5 and parts[0].removeprefix("| ").partition(" ")[0].isdecimal() else ""


def _line(row: Row) -> str:
    said = row.said.replace("|", "/").replace("<", "&lt;").replace("`", "'").replace("[", "&#91;").replace("]", "&#93;")
    return f"| {row.number} {CLASSES[row.number]} | {row.kind} | {row.by} | {row.how} | {said} |"
