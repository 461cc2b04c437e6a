"""Work that is done once and recorded: what its code is, and how it is named."""
