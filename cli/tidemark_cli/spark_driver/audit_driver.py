"""`tidemark audit` as the application of a spark-submit: arguments in, in the session that it made.

Its path is what a SparkApplication names (Dockerfile,
`tidemark_operator.resources.spark_application`).
"""

import sys

from tidemark_cli.main import main

if __name__ == "__main__":
    sys.exit(main(["audit", *sys.argv[1:]]))
