"""The sweep's PostgreSQL: a server in hand, and what happens to it."""
