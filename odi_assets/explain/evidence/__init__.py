"""Where is my row? What became of the rows of some keys in a streaming query, and why.

``spark.plans`` reads from Spark's plan what the query does with a row; ``collect`` reads the rows of the keys from the
sources; ``fates``, ``joins`` and ``single`` decide, from that and the watermarks of the batches alone;
``explain.verdicts`` has the answers. State is not needed: it only confirms.
"""
