"""An experiment file as a whole: what it must hold, whether it says the same wherever it is loaded, and its graph at a
hundredth of its size."""
