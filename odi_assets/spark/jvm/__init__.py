"""The JVM of a classic session: which Java, its command line, its archive of classes, and its start."""
