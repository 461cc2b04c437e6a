"""The parts of verification that compute. Imports jax."""
