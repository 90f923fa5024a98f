"""Nodes that are queries of Structured Streaming: planned, run, recovered, and served; ``kind`` is their door."""
