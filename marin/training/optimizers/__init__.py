"""Optimizers of a recipe: Levanter's own classes, and what each does with which tensor.

across.py   those that look across tensors, a plugin
rule.py     the optimizer of a recipe, its rates, and its groups of tensors
"""
