"""Train steps and what is made of them."""
