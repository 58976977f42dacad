"""Fork Spark's Python workers without pandas, in sessions that the audit started.

This is pyspark's own daemon (`spark.python.daemon.module`); its workers run the kernel alone. The
kernel is not imported before the fork, as Arrow starts threads.
"""

from pyspark.daemon import manager

from tidemark_audit.engines.arrow_without_pandas import leave_out_pandas

if __name__ == "__main__":
    leave_out_pandas()
    manager()
