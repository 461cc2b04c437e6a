"""A run as Weights and Biases has it: exported to an offline run, or live beside the ledger."""
