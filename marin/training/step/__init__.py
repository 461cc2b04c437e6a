"""The arithmetic of one train step, the same on any number of devices.

contract.py      what every step is: its programs, the mesh, what a step leaves
slices.py        the state cut into slices: what lies where on a mesh
update.py        one slice after the step: clipping, optimizer, fingerprint
shards.py        the step in logical shards and slices
fingerprint.py   two sums of a tensor that are the same for every sharding
compiled.py      a function compiled as a recipe's profile asks

The steps of the plugins exact and scale (layer by layer) are such steps too.
"""
