"""Blobs that are not kept as they are: many in one file, or made from others."""
