"""What concerns a process of this machine, whatever it works on."""
