"""Commands about documents: built, listed, asked."""
