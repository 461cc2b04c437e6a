"""Data that lies on the network: files fetched by their digests, and the Hugging Face Hub."""
