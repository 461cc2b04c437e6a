"""Commands that write runs for other people."""
