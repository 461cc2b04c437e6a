"""The arithmetic of one train step, the same on any number of devices.

slices.py        the state cut into slices: what lies where on a mesh
shards.py        the step in logical shards and slices, and what all steps have in common
exact.py         the step of profile ``exact``, whose sums have no order
products.py      matrix products in the form whose bits do not depend on the processor
fingerprint.py   two sums of a tensor that are the same for every sharding
compiled.py      a function compiled as a recipe's profile asks
"""
