"""What ``odi doctor --deployment`` looks at: one instance for all of Dagster's processes, set up for nodes."""
