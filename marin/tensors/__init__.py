"""Stored arrays read by what they mean: token caches and training checkpoints, by TensorStore alone. No jax.

What is read here was brought: shapes are bounded before anything is allocated, and files that the kind does not have are
refused.
"""
