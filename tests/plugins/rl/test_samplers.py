"""Completions drawn by processes beside the one that trains: as many as there are, killed or not, they are the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dying_sampler
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from ledger import Unavailable
from marin.plugins.drafts import proposals
from marin.plugins.rl import drawing as drawing_of
from marin.plugins.rl import samplers
from marin.plugins.rl.record import first_difference, read_record
from marin.plugins.rl.rollouts import DrawnRollouts
from marin.recipe.schema import Execution, Recipe
from marin.runners import forked
from marin.training.initial import initial_state
from marin.training.optimizers.rule import optimizer
from marin.training.state import DATA
from marin.training.step.contract import mesh_of
from marin.training.step.slices import Layout, SlicedState
from tests.plugins.rl.conftest import VOCABULARY, recipe_with

pytestmark = pytest.mark.long(together="samplers", seconds=40)


@dataclass(frozen=True)
class Drawing:
    """A state, drawn from again and again as if it were the one before each update; ``records``: by one process alone."""

    recipe: Recipe
    vocabulary: Path
    step: Any
    state: SlicedState
    records: list[bytes]

    def by(self, **execution: Any) -> list[bytes]:
        """Records of the updates, drawn beside this process."""
        given = self.recipe, self.step, VOCABULARY, self.vocabulary, None, Execution(**execution)
        drawn = DrawnRollouts(*given)
        try:
            return [drawn.draw(self.state, update).record for update in range(3)]
        finally:
            drawn.close()


@pytest.fixture(scope="module")
def drawing(vocabulary: Path) -> Drawing:
    objective = {"updates_behind": 1, "beta": 0.05, "top_p": 0.95}
    recipe = recipe_with(objective=objective, trainer={"batch_size": 8, "num_steps": 4, "steps_per_segment": 4})
    first, mesh = initial_state(recipe, VOCABULARY), mesh_of(1)
    layout, by_slice = Layout(first, optimizer(recipe), 1), NamedSharding(mesh, P(DATA))
    step = SimpleNamespace(layout=layout, mesh=mesh, by_slice=by_slice, devices=1)
    state = layout.cut(first, by_slice)
    alone = DrawnRollouts(recipe, step, VOCABULARY, vocabulary)  # type: ignore[arg-type]
    return Drawing(recipe, vocabulary, step, state, [alone.draw(state, update).record for update in range(3)])


@pytest.mark.parametrize("runner", ["local", "ray"])
def test_one_that_is_killed_in_the_middle_is_replaced_and_decides_no_bit(
    drawing: Drawing, runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(dying_sampler.KILLED, str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(dying_sampler.__file__).parent))  # for those of a Ray
    monkeypatch.setattr(samplers, "WORKER", dying_sampler.WORKER)
    assert drawing.by(samplers=2, runner=runner) == drawing.records
    assert (tmp_path / "killed").exists()


def test_processes_that_do_not_start_are_refused_and_the_first_of_them_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []

    @contextmanager
    def run(*_: Any) -> Iterator[Iterator[Any]]:
        if begun:
            raise OSError("no room for another process")
        begun.append("began")
        yield iter(())
        begun.append("ended")

    monkeypatch.setattr(samplers, "WORKER", SimpleNamespace(run=run))
    several = samplers.Samplers(recipe_with(objective={"updates_behind": 1}), VOCABULARY, Execution(samplers=2))
    assert several.drawn(0) is None, "nobody asked for it"
    with pytest.raises(Unavailable, match="no room for another process") as caught:
        several.ask(0, [], [(1,)], np.zeros((1, 2), np.uint32))
    assert isinstance(caught.value.__cause__, OSError)
    several.close()
    assert begun == ["began", "ended"]


def test_where_all_are_lost_this_process_draws(
    drawing: Drawing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(dying_sampler.KILLED, str(tmp_path))
    monkeypatch.setattr(samplers, "WORKER", dying_sampler.WORKER)
    monkeypatch.setattr(forked, "RESTARTS", 0)
    assert drawing.by(samplers=1) == drawing.records
    assert "a process that draws completions is lost" in caplog.text


def test_proposals_decide_how_many_passes_it_takes_and_no_bit(
    drawing: Drawing, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[object] = []
    once = drawing_of.Drawing.ids
    monkeypatch.setattr(drawing_of.Drawing, "ids", lambda *given: passes.append(1) or once(*given))
    alone = drawing.by()
    without, passes[:] = len(passes), []
    monkeypatch.setattr(proposals, "WORTH", 0)
    assert drawing.by() == alone == drawing.records
    assert len(passes) < without / 2


def test_the_state_that_draws_is_written_before_and_said(drawing: Drawing) -> None:
    """Update 0 and 1 by the first state, 2 by the second: in a segment of four updates, one behind."""
    assert [one.drawn_before for one in map(read_record, drawing.records) if one is not None] == [0, 0, 1]
    other = drawing.records[2].replace(b'"drawn_before":1', b'"drawn_before":2')
    said = "drawn by the state before update: recorded 2, found 1"
    assert first_difference(other, drawing.records[2]) == said


@pytest.mark.parametrize(
    ("behind", "each", "expected"), [(None, 4, [0, 1, 2, 3, 4]), (2, 4, [0, 0, 0, 1, 4]), (9, 2, [0, 0, 2, 2, 4])]
)
def test_none_is_older_than_the_newest_recorded_state(
    drawing: Drawing, behind: int | None, each: int, expected: list[int]
) -> None:
    changed = recipe_with(
        objective={"updates_behind": behind}, trainer={"batch_size": 8, "num_steps": 8, "steps_per_segment": each}
    )
    drawn = DrawnRollouts(changed, drawing.step, VOCABULARY, drawing.vocabulary)
    assert [drawn.sampler_of(update) for update in range(5)] == expected
