"""The pages of one run: its report, its order of data, its curve; pages.py draws each by its name."""
