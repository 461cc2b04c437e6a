"""Commands that judge a run, and say whom to trust."""
