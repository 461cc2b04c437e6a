"""Questions to a collection that is made."""
