"""Streams: nodes that read what arrives, batch by batch, and the checkpoints that say how far they have come."""
