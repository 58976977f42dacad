"""Two ways to run one kernel: in this process, or on Spark. Their answers are equal."""
