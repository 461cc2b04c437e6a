"""Looking at what a training saw, without training: one batch of a run, the train steps that read a document, and both for
a parent that imports no jax."""
