"""Log and store beside their peers."""
