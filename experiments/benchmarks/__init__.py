"""Public benchmarks as tasks of `marin eval`, made from files that a user has."""
