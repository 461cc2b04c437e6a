"""Whether lm-evaluation-harness, an extra, is installed; nothing of it is imported."""

from __future__ import annotations

from importlib.util import find_spec

from marin.errors import MissingEvidence

CURE = "install requirements-evaluation.lock into this environment"


def check_installed(where: str, expected: str = "lm-eval, without torch") -> None:
    """Raises MissingEvidence where the harness is not installed."""
    if find_spec("lm_eval") is None:
        raise MissingEvidence(
            "lm-evaluation-harness is not installed", where=where, expected=expected, found="none", cure=CURE
        )
