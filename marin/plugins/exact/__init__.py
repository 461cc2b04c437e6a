"""Arithmetic with every rounding fixed: the same bits on any processor, any number of devices, any sharding.

docs/exact.md is the definition; this room executes it. A function goes through it in two steps:

* ``reading`` takes a jax function after differentiation and writes it as a ``program``: a list of operations that have
  an exact form. What has none is refused by name.
* ``compiled`` makes a jax function of a program, ``reference`` executes it in NumPy and Python's integers.

What each file is: ``tracing`` what is asked of jax that its releases do not promise; ``program`` the list as plain data
with its digest; ``functions`` exp, log, and all others that are more than one rounding, as formulas that both ways execute;
``guarded`` one rounding at a time, compiled, and what a compiled text leaves to the processor; ``integers`` sums and
contractions, compiled; ``step`` the train step; ``stacks`` how layers lie over devices that must not have them all; ``known``
the answers that are pinned, and whether this machine gives them.

jax is imported by ``tracing``, ``reading``, ``guarded``, ``integers``, ``compiled``, ``known`` and ``step`` alone.
"""
