"""Work that is done once and recorded: what its code is, and what the log says of it."""
