"""A run as an entry of MLPerf training: the contract on its hyperparameters, its log, its seeds, its reference points.

Everything here is read from events; nothing imports jax. The rules are those of MLCommons' training policies; the lines
are written by its own ``mllogger``.
"""
