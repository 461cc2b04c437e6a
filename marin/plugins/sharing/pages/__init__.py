"""Pages as evidence: what a publisher signs of them, and how a verifier draws them again."""
