"""Part of the verdict ``data``: the collections of documents that a run's recipe names, made again from their sources."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from marin.data.collected import collections_of
from marin.record.root import Root
from marin.verify.case import Case
from marin.verify.segments.sampling import describe_bound, draw, seed
from marin.verify.verdict import Outcome, Verdict, judge_safely, worst

if TYPE_CHECKING:
    from marin.plugins.collections.replay import Draw, Replayed


def with_collections(case: Case, made: Verdict, sample: int | None, root: bytes) -> Verdict:
    """``made``, the verdict on the steps of the pipeline, and those on the collections that they begin with.

    Args:
        sample: how many shards of each phase are executed; None: all.
        root: of the log, by which they are drawn.
    """
    found = list(dict.fromkeys([*collections_of(case.run.recipe), *case.collections]))
    if not found or made.outcome == "FAIL":
        return made
    verdicts = [judge_safely(lambda artifact=artifact: _judge(case, artifact, sample, root)) for artifact in found]  # type: ignore[misc]
    outcome: Outcome = worst([made.outcome, *(verdict.outcome for verdict in verdicts)])
    lines = (*made.lines, *(line for verdict in verdicts for line in verdict.lines))
    executed = any(verdict.executed for verdict in (made, *verdicts) if verdict.outcome == outcome)
    return Verdict(outcome, lines, executed)


def _judge(case: Case, artifact: str, sample: int | None, root: bytes) -> Verdict:
    from marin.plugins.collections.replay import replay  # Arrow, where there is a collection

    with tempfile.TemporaryDirectory(prefix="collection-", dir=case.workshop) as folder:
        found = replay(
            case.store,
            case.history,
            artifact,
            Path(folder),
            workers=case.workers,
            reach=case.reach,
            draw=_shard_sampler(artifact, sample, root),
        )
    if found.wrong:
        if not found.same_code:
            said = "the installed code or packages are not those that made it, and give another result"
            return Verdict("UNAVAILABLE", (f"collection {artifact}: {said}", *found.wrong))
        return Verdict("FAIL", found.wrong, executed=True)
    lines = [f"collection: {artifact}, made again from its sources in {found.executed} shards"]
    if found.taken:
        assert sample is not None
        lines.append(f"of each phase {sample} shards were executed, {found.taken} in all were taken as recorded")
        lines.append(describe_bound(sample))
    if found.missing:
        named = ", ".join(found.missing[:3])
        lines.append(
            f"{len(found.missing)} of its sources could not be had when it was made and are no part of it: {named}"
        )
    return Verdict("PARTIAL" if found.taken else "PASS", tuple(lines))


def judge_collection(root: Root, artifact: str, folder: Path, *, sample: int | None, workers: int) -> Replayed:
    """A collection of ``root`` made again in the empty ``folder``, without a run."""
    from marin.plugins.collections.replay import replay

    drawn = _shard_sampler(artifact, sample, root.reader().checkpoint().root)
    return replay(root.store_to_read(), root.history(), artifact, folder, workers=workers, draw=drawn)


def _shard_sampler(artifact: str, sample: int | None, root: bytes) -> Draw:
    """A sample of the shards of each phase, that nobody could choose."""

    def drawn(kind: str, count: int) -> Sequence[int]:
        if sample is None or sample >= count:
            return range(count)
        return draw(count, sample, seed(root, f"{artifact} {kind}"))

    return drawn
