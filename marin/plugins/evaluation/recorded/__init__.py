"""An evaluation as evidence, no matter who asked: what was asked and answered, how it is stored, and where two of them part."""
