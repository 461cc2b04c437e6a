"""A line of `marin log`: names as lists say them; an event's JSON as it was recorded."""

from __future__ import annotations

import pytest

from ledger import Event
from marin.cli.looking.log import describe, gist
from marin.record import events as types


def begun(pipeline: str) -> Event:
    digest = "sha256:" + "0" * 64
    body = types.RunStarted(
        run="abcd2345", pipeline=pipeline, plan=digest, recipe_digest=digest, recipe={}, code={}, environment={}
    )
    return Event(
        id="e1",
        type=types.RUN_STARTED,
        stream="run/abcd2345",
        seq=0,
        time="2026-11-21T10:00:00Z",
        actor="alice",
        body=types.write(body),
    )


@pytest.mark.parametrize(
    ("recorded", "said"), [(types.DEFAULT_PIPELINE, "pipeline"), ("exp001_grammar_scaling", "exp001_grammar_scaling")]
)
def test_a_plan_is_called_as_in_lists(recorded: str, said: str) -> None:
    event = begun(recorded)
    assert f"pipeline={said} " in gist(event.body)
    assert describe(0, event)["body"] == event.body, "and what was recorded stays"
