"""The sample: the 2013 flights out of New York, landed a few days at a time."""
