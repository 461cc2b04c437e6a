"""What this plugin adds: who explains the first step that differs, for ``marin verify --explain``."""

from __future__ import annotations

from marin.plugins.explain.explain import explain

__all__ = ["explain"]
