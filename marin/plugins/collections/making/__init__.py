"""From sources to a collection: its phases, and what is decided between them over all documents."""
