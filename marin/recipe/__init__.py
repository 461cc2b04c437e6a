"""What decides the bits: the recipe, and how one is composed."""
