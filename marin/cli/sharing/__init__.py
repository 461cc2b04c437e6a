"""Commands that write runs for other people and their tools."""
