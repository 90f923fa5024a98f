"""Where is my row? ``batch`` follows a key through nodes, ``stream`` asks a stream's past, ``checkpoint`` its state alone.

``verdicts`` has the answers of all three.
"""
