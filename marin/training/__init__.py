"""The arithmetic of training, by jax, haliax and Levanter. Who else may import these is in tests/test_architecture.py.

Import it in a process in which :func:`marin.process.arithmetic.apply` has run, or the contract is not in force.
"""
