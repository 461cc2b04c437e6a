"""Where documents come from: files found and hashed, and one reader for each kind of them."""
