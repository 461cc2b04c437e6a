"""What each type of event is: body, place, what it must agree with, what it claims, what a run becomes by it.

families/    one file for each family of types; a new type is a ``Kind`` in one of them
kind.py      what can be said of a type, and of what its functions get to see
known.py     the look-ups: by type, by body; plugins bring their own families (the entry points ``marin.kinds``)
claim.py     a sentence that a record amounts to
body.py      what all bodies are made of
"""
