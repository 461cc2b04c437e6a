"""Steps that were found not to be deterministic: a second execution of the same identity made other content.

`marin run --check` looks and records ``step.checked``. One event that says no is enough for ever: that later executions
happened to agree takes nothing back.
"""

from __future__ import annotations

from marin.history.runs import History, facts
from marin.record.events import StepChecked

MARK = "not deterministic"


def nondeterministic(history: History) -> dict[str, int]:
    """The identities of such steps, and the event that says so first."""
    found: dict[str, int] = {}
    for fact in facts(history, StepChecked):
        if not fact.body.deterministic:
            found.setdefault(fact.body.identity, fact.index)
    return found
