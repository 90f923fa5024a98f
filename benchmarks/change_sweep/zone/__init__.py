"""Landing zones whose files are moved, renamed, rewritten, copied, hidden, packed and put back between runs."""
