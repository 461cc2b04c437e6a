"""The commands ``unlearn`` and ``attribute``."""
