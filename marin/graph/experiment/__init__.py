"""An experiment file as a whole: what it must hold, and its graph at a hundredth of its size."""
