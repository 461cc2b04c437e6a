"""A package by a file, for a library of the lock (draccus) installs one of this name, which would otherwise be found first."""
