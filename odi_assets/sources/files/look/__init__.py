"""What files of text are by their format's standard, found by a parser that stands beside Spark's.

Spark takes the first JSON object of a line and leaves the rest, takes a quoted line break for the end of a row, and
makes U+FFFD of bytes that are no text. So each new file is looked at before Spark reads it. Executors get these modules
by value: they may not have this package. So they import the standard library and pyarrow alone.
"""
