"""What Spark starts to fork its Python workers from, in sessions that the audit started.

It is pyspark's own (`spark.python.daemon.module`); its workers, which run the kernel alone, do not
import pandas. The kernel itself is not imported before they are forked: Arrow starts threads.
"""

from pyspark.daemon import manager

from tidemark_audit.engines.arrow_without_pandas import leave_out_pandas

if __name__ == "__main__":
    leave_out_pandas()
    manager()
