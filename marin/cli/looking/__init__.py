"""Commands that look at what was recorded: lists, one thing, differences, lineage, the log, MLflow's pages."""
