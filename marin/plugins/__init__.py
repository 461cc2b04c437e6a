"""Capabilities beside the core, each in one folder that can be deleted. The core imports none: entry points name them."""
