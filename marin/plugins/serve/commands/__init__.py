"""The commands ``generate`` and ``serve``."""
