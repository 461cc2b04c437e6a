"""The pages of one run: its report, its order of data, its curve."""
