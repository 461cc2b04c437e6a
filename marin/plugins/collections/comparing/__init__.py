"""What compares texts by their words: near-duplicates and decontamination."""
