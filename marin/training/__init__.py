"""Where the arithmetic happens: the only package that imports jax, haliax and levanter.

Import it in a process in which :func:`marin.process.arithmetic.apply` has run, or the contract is not in force.
"""
