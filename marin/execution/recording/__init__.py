"""How an executing step's facts become events of its run, and what the run asks of it meanwhile."""
