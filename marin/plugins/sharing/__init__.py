"""A run for other people and their tools: attestations, signatures, dossiers, certificates, publications and a site."""
