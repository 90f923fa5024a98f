"""Dagster: nodes as assets, with their IO manager, resources, jobs, schedules and sensors."""
