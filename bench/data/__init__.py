"""Figures of collections of documents and of tokens, each beside a peer on the same input in the same run."""
