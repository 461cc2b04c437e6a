"""Who wrote an event: a key for each person and machine, enrolled in the log, and signatures of those keys."""
