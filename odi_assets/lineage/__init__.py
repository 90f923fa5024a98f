"""What each column of a node's table is made of: read from the node's SQL, or from Spark's plan of its function."""
