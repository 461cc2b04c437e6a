"""Trees of files: listed, taken in, checked out."""
