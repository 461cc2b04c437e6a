"""What earlier recipes meant, for the runs that were recorded so."""
