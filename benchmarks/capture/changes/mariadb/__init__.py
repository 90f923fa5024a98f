"""The sweep's MariaDB: a server in hand, and what happens to it."""
