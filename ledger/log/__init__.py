"""The log: one writer, many verified readers, and the keys they believe."""
