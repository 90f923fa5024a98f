"""Where is my row? ``batch`` follows a key through nodes, ``stream`` asks a stream node's past."""
