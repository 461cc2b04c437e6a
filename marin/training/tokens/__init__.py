"""Token caches: built, digested, looked into."""
