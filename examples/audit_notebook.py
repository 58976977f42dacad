"""Tidemark's audit in a notebook: the verdict, its tables and the samples as DataFrames."""

# %% [markdown]
# # Tidemark's audit in a notebook
#
# Open this file as a notebook (Jupyter with jupytext, VS Code, Databricks), or run it as it is:
#
#     spark-submit examples/audit_notebook.py export.jsonl
#
# It needs `pip install 'tidemark[audit]'` where Spark's workers run too. `places` are what
# `tidemark audit` takes: files and directories of samples, or Prometheus's address.

# %%
import sys

import tidemark_audit
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tidemark_audit.outputs import tables_of
from tidemark_audit.sources.data_source import PrometheusDataSource

spark = SparkSession.builder.getOrCreate()
places = sys.argv[1:] or ["export.jsonl"]

# %% [markdown]
# ## The verdict
# One call reads everything once; the result holds all that the report shows.

# %%
result = tidemark_audit.run(spark, places)
sys.stdout.write(f"{result.verdict}: {result.sentence}\n")
rules = spark.createDataFrame(tables_of(result)["rules"])
rules.select("rule", "outcome", "title", "measured").show(truncate=False)

# %% [markdown]
# ## Its tables as DataFrames
# Who was missing, for how long, and was it planned?

# %%
intervals = spark.createDataFrame(tables_of(result)["intervals"])
missing = (
    intervals.where("kind = 'under-replicated'")
    .groupBy("brokers", "planned")
    .agg((F.sum(F.col("end_ms") - F.col("start_ms")) / 1000).alias("partition_seconds"))
    .orderBy(F.desc("partition_seconds"))
)
missing.show()

# %% [markdown]
# ## The samples themselves
# `prometheus` is a data source like any other: here how many samples each family has, and the
# fewest in-sync replicas that a leader told of.

# %%
spark.dataSource.register(PrometheusDataSource)
samples = spark.read.format("prometheus").load(",".join(places))
families = samples.groupBy("metric").count().orderBy("metric")
families.show(50, truncate=False)
fewest = (
    samples.where("metric = 'tidemark_partition_in_sync_replicas'")
    .groupBy("topic", "partition")
    .agg(F.min("value").alias("fewest_in_sync"))
)
fewest.show()
