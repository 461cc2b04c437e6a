"""lm-evaluation-harness as evidence: tasks as data, what was asked and answered, and the bytes that are stored."""
