"""The types of events that the core writes, a file for each family."""
