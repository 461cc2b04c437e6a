"""What differs first where a replay has other bits: the first operation of the first step, between two settings."""
