"""What Dagster shows besides what it runs: nodes as a user likes them, and system tables."""
