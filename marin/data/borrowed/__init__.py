"""Tokenizers that were made elsewhere, in the forms in which others keep them."""
