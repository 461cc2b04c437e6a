"""Training checkpoints: a state that lies in slices on devices, on its way to the store and back.

digesting.py   the digest of a state, taken where its slices lie
saving.py      every process writes its own slices, beside the train steps that follow
loading.py     a state read back onto devices, each process its own slices, and proven
whole.py       a state read back as a whole, in any form
"""
