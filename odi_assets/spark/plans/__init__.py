"""What the query of a stream node does with a row, read from Spark's plan of it."""
