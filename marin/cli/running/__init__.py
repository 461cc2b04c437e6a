"""Commands that execute steps: one stage, a recipe's whole pipeline, an experiment file, preregistered experiments."""
