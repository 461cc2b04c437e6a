"""Mixtures of experts: Levanter's models, with tokens brought to their experts by operations that have an exact form.

dispatch.py   which experts a token has, and what they make of it
models.py     Levanter's Mixtral and Qwen3-MoE with that in the place of their own
tensors.py    the tensors of experts as folders of Hugging Face have them
"""
