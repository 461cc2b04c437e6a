"""The steps from raw text to an exported model."""
