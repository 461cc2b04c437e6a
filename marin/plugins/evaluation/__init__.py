"""Evaluations that are recorded and judged: tasks of lm-evaluation-harness, held-out texts, the BabyLM challenge."""
