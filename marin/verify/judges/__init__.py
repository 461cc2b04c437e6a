"""The judges: a module for each of the five verdicts on a run, one for ``evaluation`` beside them, and one for each part
that has its own questions.

The five are ``ledger``, ``artifacts``, ``data``, ``training`` and ``model``. ``collection``, ``exclusion`` and
``experiment`` are parts of ``data``, and ``heldout`` is one of ``evaluation``. ``loop`` judges a run that its user's own
loop recorded. ``workers`` executes training again, for ``training``.
"""
