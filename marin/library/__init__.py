"""Marin for programs and notebooks: roots and runs as objects (docs/api.md). ``marin.open`` is the door.

root.py      a root: its runs as a table
run.py       one run: numbers, recipe, pages, batches, its model
model.py     the trained model of a run, and text from it
page.py      a page, shown in a notebook or written to a file
checking.py  a verification, and what it found
"""
