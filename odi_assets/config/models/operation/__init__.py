"""How a project is operated: what Dagster runs by itself, and whom it alerts."""
