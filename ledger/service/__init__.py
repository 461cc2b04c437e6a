"""One writer for many processes: what they say to each other, and both sides of it."""
