"""What somebody writes without this package: a session, a read, an append. ``python script.py SCHEMA FILE TABLE``."""

import sys

from deltalake import write_deltalake
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.read.schema(sys.argv[1]).csv(sys.argv[2], header=True)
write_deltalake(sys.argv[3], rows.toArrow(), mode="append")
spark.stop()
