"""What is demanded of rows because a table has partitions, or a run is of a part of it."""
