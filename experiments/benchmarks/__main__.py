"""`python -m experiments.benchmarks SOURCES TASKS`."""

from experiments.benchmarks.prepare import main

main()
