"""The artifact store: immutable bytes and trees of them, by content."""
