"""Where is my row? ``batch`` follows a key through nodes, ``stream`` asks a stream's past, ``checkpoint`` a state.

``verdicts`` has the answers of all three.
"""
