"""The workshop of forgeries: a dishonest operator (or publisher) changes one true run in every way that docs/threat-model.md
names, and a stranger verifies what comes out. ``python -m tests.adversary.forgeries`` prints the table in docs/verify.md; it ends
with status 1 if one forgery passes.
"""
