"""A bundle: recorded evaluations of one model, for a stranger who has that model alone."""
