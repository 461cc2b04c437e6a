"""An experiment file as a whole: what it must hold, and whether it says the same wherever it is loaded."""
