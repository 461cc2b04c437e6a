"""What is wrong with a log: every byte derived again, every file explained."""
