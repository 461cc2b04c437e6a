"""`marin store`: the artifacts, here and on remotes."""
