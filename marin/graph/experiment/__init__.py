"""An experiment file's graph at a hundredth of its size."""
