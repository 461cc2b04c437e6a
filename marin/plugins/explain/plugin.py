"""What this plugin adds: who explains the first step that differs, for ``marin verify --explain``, and who looks at recorded
states without replay, for ``--screen``. jax begins under the arithmetic contract: it is imported when they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marin.plugins.explain.explain import explain_report

if TYPE_CHECKING:
    from ledger import Store
    from marin.history.run import Run
    from marin.verify.segments.screening import Screening

__all__ = ["explain_report", "screen_run"]


def screen_run(run: Run, store: Store) -> Screening:
    """Look at every segment whose two states can be had."""
    from marin.plugins.explain import states

    return states.screen_run(run, store)
