"""Apache Kafka's Java clients by its own tools. VerifiableProducer and VerifiableConsumer speak our
words already; ConsoleConsumer and GetOffsetShell are translated."""

import argparse
import os
import re
import subprocess
import tempfile
from pathlib import Path

from tests.compatibility.programs.command_line import HOUR_MS, RETENTION, emit, run, seen

TOOLS = "org.apache.kafka.tools"
LINE = re.compile(r"Partition:(\d+)\tOffset:(\d+)\t(.*)")


def java(tool: str, *options: str) -> list[str]:
    """One core's worth of compiler: these run for seconds. TIDEMARK_KAFKA_JARS: the tests'."""
    jars = f"{os.environ['TIDEMARK_KAFKA_JARS']}/*"
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m"]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", *quick, quiet, "-cp", jars, f"{TOOLS}.{tool}", *options]


def produce(requested: argparse.Namespace) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".properties", delete=False) as settings:
        settings.write(f"compression.type={requested.codec}\nlinger.ms=5\n")
        settings.write(f"enable.idempotence={str(requested.idempotent).lower()}\n")
        settings.write("retries=2147483647\n")  # the tool's own is none
    where = ["--bootstrap-server", requested.bootstrap, "--topic", requested.topic]
    what = ["--max-messages", str(requested.count), "--throughput", str(requested.rate or -1)]
    how = [
        "--acks",
        "-1",
        "--value-prefix",
        str(requested.prefix),
        "--command-config",
        settings.name,
    ]
    try:
        subprocess.run(java("VerifiableProducer", *where, *what, *how), check=True)
    finally:
        Path(settings.name).unlink()


def offsets(requested: argparse.Namespace, time: str) -> dict[int, int]:
    where = ["--bootstrap-server", requested.bootstrap, "--topic", requested.topic, "--time", time]
    found = [line.split(":") for line in answer("GetOffsetShell", *where).splitlines()]
    return {int(partition): int(offset) for _, partition, offset in found}


def read(requested: argparse.Namespace, partition: int, offset: int, count: int) -> None:
    where = ["--bootstrap-server", requested.bootstrap, "--topic", requested.topic]
    place = ["--partition", str(partition), "--offset", str(offset), "--max-messages", str(count)]
    shown = [f"--formatter-property=print.{name}=true" for name in ("partition", "offset")]
    limit = ["--timeout-ms", "30000"]
    text = answer("consumer.ConsoleConsumer", *where, *place, *shown, *limit)
    for line in text.splitlines():
        found = LINE.fullmatch(line)
        assert found is not None, line
        numbers = {"partition": int(found[1]), "offset": int(found[2])}
        emit("record_data", topic=requested.topic, value=found[3], **numbers)


def consume(requested: argparse.Namespace) -> None:
    beginnings, ends = offsets(requested, "earliest"), offsets(requested, "latest")
    for partition, end in ends.items():
        read(requested, partition, beginnings[partition], end - beginnings[partition])


def seek(requested: argparse.Namespace) -> None:
    read(requested, 0, offsets(requested, str(requested.timestamp))[0], 1)


def group(requested: argparse.Namespace) -> None:
    where = ["--bootstrap-server", requested.bootstrap, "--topic", requested.topic]
    who = ["--group-id", requested.group, "--session-timeout", "6000", "--verbose"]
    how = ["--assignment-strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"]
    command = java("VerifiableConsumer", *where, *who, *how)
    os.execvp(command[0], command)


def access(requested: argparse.Namespace) -> None:
    """By a program of ours on Kafka's own library: its tools try one access each, in seconds."""
    command = java("AccessProgram", "--bootstrap", requested.bootstrap, "--ca", requested.ca)
    place = command.index("-cp") + 1
    command[place] += f":{os.environ['TIDEMARK_JAVA_CLIENTS']}"
    command[place + 1] = "AccessProgram"
    os.execvp(command[0], command)


def admin(requested: argparse.Namespace) -> None:
    where = ["--bootstrap-server", requested.bootstrap]
    topic = [*where, "--topic", requested.topic]
    config = [*where, "--entity-type", "topics", "--entity-name", requested.topic]

    def count() -> int:
        described = answer("TopicCommand", *topic, "--describe")
        return len(re.findall(r"Partition: \d+", described))

    def retention_ms() -> int:
        configs = answer("ConfigCommand", *config, "--describe")
        return int(re.findall(rf"{RETENTION}=(\d+)", configs)[0])

    def notify_topic(partitions: int, hours: int) -> None:
        emit("partition_count", count=seen(count, partitions))
        emit("retention_ms", value=seen(retention_ms, hours * HOUR_MS))

    new = ["--partitions", "2", "--replication-factor", "3", "--config", f"{RETENTION}={HOUR_MS}"]
    answer("TopicCommand", *topic, "--create", *new)
    notify_topic(2, 1)
    answer("TopicCommand", *topic, "--alter", "--partitions", "4")
    answer("ConfigCommand", *config, "--alter", "--add-config", f"{RETENTION}={2 * HOUR_MS}")
    notify_topic(4, 2)
    answer("TopicCommand", *topic, "--delete")
    emit("topic_deleted")


def answer(tool: str, *options: str) -> str:
    return subprocess.run(
        java(tool, *options), stdout=subprocess.PIPE, text=True, check=True
    ).stdout


if __name__ == "__main__":
    run(
        {
            "produce": produce,
            "consume": consume,
            "seek": seek,
            "group": group,
            "admin": admin,
            "access": access,
        }
    )
