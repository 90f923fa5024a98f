"""``odi checkpoint``: what is in the checkpoint of a streaming query, and how the query is doing."""
