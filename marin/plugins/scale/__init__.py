"""What the TPU's compiler says of a recipe, on a machine that has no TPU.

chips.py     kinds of TPU: memory, peak, links; names of slices
assumed.py   what a recipe does not say and a slice decides
question.py  what the compiling process is asked, and what it answers
child.py     that process: it compiles the programs of a train step for a slice
stock.py     the same model as Levanter's own trainer would shard it, to be set beside
compiled.py  the process started and judged: what fits, what it would cost
foreseen.py  the same for `marin train --dry-run`, or why it cannot be had
layered.py   the train step layer by layer, in which no device holds all parameters
hlo.py       an optimised program read: identity, cycles, what it moves
parts.py     a model in the parts that it gathers; attention.py: attention by the TPU's splash kernel
"""
