"""Collections: documents read from raw sources, each with what every step decided about it, under one digest."""
