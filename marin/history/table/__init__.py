"""Runs as the rows of a table: what differs among them, columns by name, filters and orders, and what cannot be compared."""
