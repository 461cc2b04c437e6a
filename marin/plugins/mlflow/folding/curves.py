"""The points that MLflow was told of one run, by what they rest on: one execution of a step, or one state.

A step may be executed again with other inputs, and a training may withdraw train steps. A chart has what stands: points
of an execution that another took the place of are taken away, and those of one that has no result yet, beside a result
that stands, wait until it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from marin.plugins.mlflow.folding.intents import Points, PointsGone

Ground = tuple[str, str]
"""A step with the identity of its execution, "" where nobody said how it began; or ``OF_STATE`` with the digest of one."""
OF_STATE = "state"
CurveChange = Points | PointsGone


@dataclass
class Curves:
    """What was told, and what waits."""

    _shown: dict[tuple[str, str], dict[Ground, set[int]]] = field(default_factory=dict)
    _waiting: dict[Ground, list[Points]] = field(default_factory=dict)
    _measured: dict[str, list[Points]] = field(default_factory=dict)

    def has(self, run: str, key: str, ground: Ground, step: int) -> bool:
        """Whether this point of a curve was told by that."""
        told = self._shown.get((run, key), {})
        return any(step in steps for other, steps in told.items() if _same_ground(ground, other))

    def tell(self, points: Points, ground: Ground, *, again: bool = False) -> Iterator[CurveChange]:
        """Points that stand: they take the place of those that rest on something else. Of points that rest on the same the
        first stays, or with ``again`` the last."""
        grounds = self._shown.setdefault((points.run, points.key), {})
        steps, seen = {step for step, _ in points.points}, set[int]()
        for other, theirs in grounds.items():
            if not (both := steps & theirs):
                continue
            if again or not _same_ground(ground, other):
                theirs -= both
                yield PointsGone(points.run, points.key, sorted(both))
            else:
                seen |= both
        if new := [point for point in points.points if point[0] not in seen]:
            grounds.setdefault(ground, set()).update(step for step, _ in new)
            yield replace(points, points=new)

    def wait(self, points: Points, ground: Ground) -> None:
        """Points that do not stand yet."""
        self._waiting.setdefault(ground, []).append(points)

    def stands(self, ground: Ground) -> Iterator[CurveChange]:
        """What was told of the step by other executions goes, and what waited for this one is told."""
        step = ground[0]
        if step != OF_STATE:
            yield from self._gone(lambda other, _: other[0] == step and not _same_ground(other, ground))
        for points in self._waiting.pop(ground, ()):
            yield from self.tell(points, ground)

    def withdraw(self, step: str, first: int) -> Iterator[CurveChange]:
        """Points of this step from train step ``first`` on go."""
        yield from self._gone(lambda other, at: other[0] == step and at >= first)

    def measured(self, points: Points, state: str) -> Iterator[CurveChange]:
        """Points that were measured of a recorded state."""
        self._measured.setdefault(state, []).append(points)
        yield from self.tell(points, (OF_STATE, state))

    def withdraw_state(self, state: str) -> Iterator[CurveChange]:
        """What was measured of this state goes, and waits for it to be recorded again."""
        self._waiting[OF_STATE, state] = self._measured.pop(state, [])
        yield from self._gone(lambda other, _: other == (OF_STATE, state))

    def _gone(self, leaves: Callable[[Ground, int], bool]) -> Iterator[PointsGone]:
        for (run, key), grounds in self._shown.items():
            for ground, steps in grounds.items():
                if gone := sorted(at for at in steps if leaves(ground, at)):
                    steps.difference_update(gone)
                    yield PointsGone(run, key, gone)


def _same_ground(one: Ground, other: Ground) -> bool:
    """Whether both are one execution, as far as is known: of one without a beginning nothing else is."""
    return one == other or (one[0] == other[0] != OF_STATE and "" in (one[1], other[1]))
