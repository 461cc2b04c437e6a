"""What a run says of itself, read from the log alone: its record, what of it stands, and the claims it makes."""
