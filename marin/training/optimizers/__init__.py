"""Optimizers of a recipe: Levanter's own classes, and what each does with which tensor.

rules.py    each optimizer of a recipe as a configuration of Levanter's
rule.py     the optimizer of a recipe, its rates, and its groups of tensors
"""
