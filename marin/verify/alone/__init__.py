"""What brings its own evidence (a dossier, a certificate), judged without a root."""
