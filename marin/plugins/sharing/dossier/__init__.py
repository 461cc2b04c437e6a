"""The dossier: what a verified run knows of its model, as documents that others read, and the proof of each field."""
