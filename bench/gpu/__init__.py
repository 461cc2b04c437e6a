"""Does a GPU give the bits of docs/exact.md? One command (`make gpu`), its probes, and how they travel to the machine."""
