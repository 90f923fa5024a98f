"""dlt: the state of a pipeline."""
