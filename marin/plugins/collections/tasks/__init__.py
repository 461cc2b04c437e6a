"""What workers do, a task at a time: read, judge, compare, write; and the columns in which they leave it."""
