"""Which code and which machine."""
