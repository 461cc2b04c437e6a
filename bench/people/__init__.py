"""What people go through who begin here."""
