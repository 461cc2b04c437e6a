"""The census: which changes change the bits of trainings as people write them (docs/census.md).

A training is one file of `trainings/`, as its library's own tutorial would write it; of the census it has a setting to read and
a journal to write (`journal.py`). A change is one row of `changes.py`. A cell is a training under a change: processes of the
training's own environment (`environments.py`), whose journal is copied into a run of the ledger by `marin.start_run`
(`cell.py`). What a cell says follows from the runs alone (`judge.py`): equal to the training as it is, or the first step and
tensor that differ, and how far. `page.py` writes the table and the picture of docs/census.md, `naming.py` the first operation of
torch whose operands are equal and whose result is not.

A cell is named by the bytes of its training and by its change: one that is in the root is not executed again.
"""
