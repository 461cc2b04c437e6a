"""The documents of a dossier, one file for each form that someone else defined; each is a function of what is proven."""
