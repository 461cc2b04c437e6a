"""What is kept, what may go, and looking after what stays."""
