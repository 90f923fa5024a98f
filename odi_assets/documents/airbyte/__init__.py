"""Airbyte: state messages, and what its platform exports."""
