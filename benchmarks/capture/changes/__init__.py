"""A sweep of what happens to captured tables, publications and slots between two captures."""
