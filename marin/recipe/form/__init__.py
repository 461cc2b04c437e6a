"""What a recipe is written in: YAML, files of groups, records, train steps."""
