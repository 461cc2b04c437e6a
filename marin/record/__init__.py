"""What is written down: types of events, the root, its keys, and who vouches for it."""
