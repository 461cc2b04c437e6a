"""An evaluation as evidence, whoever asked: what was asked and answered, how it is stored, and where two of them part."""
