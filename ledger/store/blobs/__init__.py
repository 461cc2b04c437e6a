"""Single blobs: written once, hashed in parts, verified on every read."""
