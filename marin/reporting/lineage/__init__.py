"""The data browser: the graph of steps and artifacts, samples of their data, and the page of it."""
