"""How long things take on this machine: `make bench`. Figures for people; no test depends on a clock."""
