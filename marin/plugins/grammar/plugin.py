"""What this plugin adds: texts and minimal pairs, for ``dataset=grammar`` (:class:`marin.pipeline.corpus.Generated`)."""

from __future__ import annotations

from marin.plugins.grammar import documents, minimal_pairs

__all__ = ["documents", "minimal_pairs"]
