"""Thousands of small files at once: short-lived processes, and who begins them."""
