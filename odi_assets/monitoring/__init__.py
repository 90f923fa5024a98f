"""Figures of a project's nodes for those who watch it."""
