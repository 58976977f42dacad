"""kcat, which tells of no single acknowledgement: what it does not call failed when it ends is
acknowledged."""

import argparse
import re
import signal
import subprocess
import sys
from types import FrameType

from tests.compatibility.programs.command_line import emit, places, run, values

FORMAT = r"%p %o %s\n"
REBALANCED = re.compile(r"% Group .* rebalanced .*: (assigned|revoked)(?:: (.*))?")


def kcat(requested: argparse.Namespace, *options: str) -> list[str]:
    return ["kcat", "-b", requested.bootstrap, "-X", "log_level=3", *options]


def produce(requested: argparse.Namespace) -> None:
    # It hands lines on one by one: only with time they make a batch that a codec shrinks.
    linger = "5" if requested.rate else "200"
    wanted = ["-X", "acks=all", "-X", f"linger.ms={linger}", "-z", requested.codec]
    wanted += ["-X", f"enable.idempotence={str(requested.idempotent).lower()}"]
    command = kcat(requested, "-P", "-t", requested.topic, *wanted)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    sent = []
    for value in values(requested):
        process.stdin.write(f"{value}\n".encode())
        if requested.rate:
            process.stdin.flush()
        sent.append(value)
    _, errors = process.communicate()
    failed = [line for line in errors.decode().splitlines() if "elivery failed" in line]
    if process.returncode or failed:
        emit("producer_send_error", value="", message=errors.decode())
        sys.exit(1)
    for value in sent:
        emit("producer_send_success", value=value)


def record_data(line: str, topic: str) -> None:
    partition, offset, value = line.rstrip("\n").split(" ", 2)
    emit("record_data", topic=topic, partition=int(partition), offset=int(offset), value=value)


def read(requested: argparse.Namespace, *options: str) -> None:
    command = kcat(requested, "-C", "-q", "-t", requested.topic, "-f", FORMAT, *options)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        record_data(line, requested.topic)


def consume(requested: argparse.Namespace) -> None:
    read(requested, "-o", "beginning", "-e")


def seek(requested: argparse.Namespace) -> None:
    read(requested, "-p", "0", "-o", f"s@{requested.timestamp}", "-c", "1")


def group(requested: argparse.Namespace) -> None:
    wanted = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000"]
    # Assignments are told on the error stream, which must come in order with the records.
    command = ["-u", "-f", FORMAT, *wanted, "-G", requested.group, requested.topic]
    process = subprocess.Popen(
        kcat(requested, *command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )

    def on_signal(number: int, frame: FrameType | None) -> None:
        process.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, on_signal)
    assert process.stdout is not None
    for line in process.stdout:
        changed = REBALANCED.search(line)
        if changed:
            numbers = [int(n) for n in re.findall(r"\[(\d+)\]", changed[2] or "")]
            emit(f"partitions_{changed[1]}", partitions=places(requested.topic, numbers))
        elif not line.startswith("%"):
            record_data(line, requested.topic)


if __name__ == "__main__":
    run({"produce": produce, "consume": consume, "seek": seek, "group": group})
