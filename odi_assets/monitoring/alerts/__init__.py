"""What is said of a project when something is wrong, and how it is delivered. No secret is in it."""
