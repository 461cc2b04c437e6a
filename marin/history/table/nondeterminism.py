"""Steps that were found not to be deterministic: a second execution of the same identity made other content.

`marin run --check` looks and records ``step.checked``. One event that says no is enough for ever: that later executions
happened to agree takes nothing back.
"""

from __future__ import annotations

from marin.history.runs import History, facts
from marin.kinds.families.graph import StepChecked

MARK = "not deterministic"


def nondeterministic(history: History) -> dict[str, int]:
    """The identities of such steps, and the event that says so first."""
    found: dict[str, int] = {}
    for fact in facts(history, StepChecked):
        if not fact.body.deterministic:
            found.setdefault(fact.body.identity, fact.index)
    return found


def is_deterministic(history: History, identity: str) -> bool:
    """Whether no second execution of this identity was seen to make other content."""
    return all(fact.body.deterministic for fact in facts(history, StepChecked, identity=identity))
