"""The judges: a module for each of the six verdicts, and one for each part that has its own questions.

``ledger``, ``artifacts``, ``data``, ``training``, ``model`` and ``evaluation`` are the verdicts. ``collection``,
``exclusion`` and ``experiment`` are parts of ``data``, and ``heldout`` is one of ``evaluation``. ``loop`` judges a run
that its user's own loop recorded. ``workers`` executes training again, for ``training``.
"""
