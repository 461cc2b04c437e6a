"""Arrays and states by what they mean: the one place where this package knows of them."""
