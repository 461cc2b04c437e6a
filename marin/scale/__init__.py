"""What the TPU's compiler says of a recipe, on a machine that has no TPU.

chips.py     kinds of TPU: memory, peak, links; names of slices
hlo.py       an optimised program read: identity by data flow, estimated cycles, collectives
child.py     a process of its own that compiles the programs of a train step for a slice
compiled.py  that process started and judged: what fits, what it would cost
"""
