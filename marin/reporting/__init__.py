"""Pages, plots and tables for people."""
