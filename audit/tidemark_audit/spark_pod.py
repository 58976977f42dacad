"""Run the audit image's entry point: `tidemark audit`, or a part of Spark if Spark made the pod.

Spark on Kubernetes calls its image with `driver` or `executor` as the first argument and passes the
rest in environment variables. Both need what this image has anyway: pyspark's own Spark, Java, and
the Python with the audit's packages.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

EXECUTOR_CLASS = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
JAVA_OPTION = "SPARK_JAVA_OPT_"  # and a number: one word of the executor's Java options
OF_EXECUTOR = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


PARTS_OF_SPARK = ("driver", "executor")


class NotFromSpark(Exception):
    """Report that the image was called as a part of Spark without Spark's variables."""


def command_of(
    arguments: Sequence[str], environment: Mapping[str, str], spark_home: Path
) -> list[str]:
    """Return the program and its arguments.

    Raises NotFromSpark.
    """
    match list(arguments):
        case ["driver", *rest]:
            address = _said(environment, "SPARK_DRIVER_BIND_ADDRESS")
            submit = [str(spark_home / "bin" / "spark-submit"), "--deploy-mode", "client"]
            return [*submit, "--conf", f"spark.driver.bindAddress={address}", *rest]
        case ["executor", *_]:
            return _executor_command(environment, spark_home)
        case rest:
            return ["tidemark", "audit", *rest]


def _executor_command(environment: Mapping[str, str], spark_home: Path) -> list[str]:
    memory = _said(environment, "SPARK_EXECUTOR_MEMORY")
    options = sorted(
        (int(name.removeprefix(JAVA_OPTION)), value)
        for name, value in environment.items()
        if name.startswith(JAVA_OPTION)
    )
    class_path = [environment.get(name) for name in ("SPARK_CONF_DIR", "SPARK_CLASSPATH")]
    words = ["java", *(value for _, value in options), f"-Xms{memory}", f"-Xmx{memory}"]
    words += ["-cp", ":".join([*filter(None, class_path), str(spark_home / "jars" / "*")])]
    words.append(EXECUTOR_CLASS)
    for option, name in OF_EXECUTOR.items():
        words += [option, _said(environment, name)]
    return words


def _said(environment: Mapping[str, str], name: str) -> str:
    if name not in environment:
        raise NotFromSpark(
            f"expected {name}, which Spark sets in its pods, found none; remove the argument"
            " driver or executor to run an audit"
        )
    return environment[name]


def main() -> None:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        sys.exit("expected the package pyspark, found none; install 'tidemark[audit]'")
    spark_home = Path(found.origin).parent
    try:
        command = command_of(sys.argv[1:], os.environ, spark_home)
    except NotFromSpark as error:
        sys.exit(str(error))
    own = {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable}
    if sys.argv[1:2] and sys.argv[1] in PARTS_OF_SPARK:
        # Executors write beside themselves, and all else is read-only.
        os.chdir(os.environ.get("HOME", "/tmp"))
    os.execvpe(command[0], command, {**os.environ, **own})


if __name__ == "__main__":
    main()
