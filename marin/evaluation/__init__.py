"""What a trained model can do, measured. Imports jax."""
