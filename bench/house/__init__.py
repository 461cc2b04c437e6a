"""How much of the house somebody must hold in mind, as numbers that only fall."""
