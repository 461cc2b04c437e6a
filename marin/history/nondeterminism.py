"""Steps that were found not to be deterministic: a second execution of the same identity made other content.

`marin run --check` looks and records ``step.checked``. One event that says no is enough for ever: that later executions
happened to agree takes nothing back.
"""

from __future__ import annotations

from marin.history.runs import History
from marin.record.events import STEP_CHECKED

MARK = "not deterministic"


def nondeterministic(history: History) -> dict[str, int]:
    """The identities of such steps, and the event that says so first."""
    found: dict[str, int] = {}
    for index, event in history.events(type=STEP_CHECKED):
        if event.body.get("deterministic") is False:
            found.setdefault(str(event.body.get("identity")), index)
    return found
