"""Lines of files as values: unpacked, and read as JSON."""
