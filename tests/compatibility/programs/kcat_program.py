"""kcat, which tells of no single acknowledgement: what it does not call failed when it ends is
acknowledged."""

import argparse
import re
import signal
import subprocess
import sys
from types import FrameType

from tests.compatibility.programs.command_line import (
    AccessRefused,
    emit,
    places,
    run,
    try_accesses,
    values,
)
from tests.support.access_programs import NO_ANSWER, NOT_LISTED, Cell

FORMAT = r"%p %o %s\n"
SENTENCES = {  # of librdkafka, for the codes of brokers
    "Topic authorization failed": "TOPIC_AUTHORIZATION_FAILED",
    "Group authorization failed": "GROUP_AUTHORIZATION_FAILED",
    "Authentication failure": "SASL_AUTHENTICATION_FAILED",
    "SASL authentication error": "SASL_AUTHENTICATION_FAILED",
}
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


def access(requested: argparse.Namespace) -> None:
    try_accesses(lambda cell: attempt(requested, cell))


def attempt(requested: argparse.Namespace, cell: Cell) -> None:
    """One access by one kcat; its errors are librdkafka's sentences."""
    where = kcat(requested, "-X", f"ssl.ca.location={requested.ca}", *credentials(cell))
    limit = ["-X", f"message.timeout.ms={cell.limit_ms}"]
    commands = {
        "produce": ["-P", "-t", cell.topic, *limit],
        "consume": ["-C", "-t", cell.topic, "-p", "0", "-o", "beginning", "-c", "1"],
        "group": ["-X", "auto.offset.reset=earliest", "-c", "1", "-G", cell.group, cell.topic],
        "list": ["-L"],
        "describe": ["-L", "-t", cell.topic],
    }
    try:
        done = subprocess.run(
            [*where, *commands[cell.verb]],
            input="kcat\n",
            capture_output=True,
            text=True,
            timeout=cell.limit_s,
        )
    except subprocess.TimeoutExpired as error:
        raise AccessRefused(NO_ANSWER, str(error)) from error
    said = done.stdout + done.stderr
    for sentence, name in SENTENCES.items():
        if sentence in said:
            raise AccessRefused(name, said[-300:])
    if done.returncode:
        raise AccessRefused(NO_ANSWER, said[-300:])
    if cell.verb == "list" and f'topic "{cell.topic}"' not in said:
        raise AccessRefused(NOT_LISTED)


def credentials(cell: Cell) -> list[str]:
    if not cell.mechanism:
        return ["-X", "security.protocol=ssl"]
    words = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": cell.mechanism,
        "sasl.username": cell.user,
        "sasl.password": cell.password,
    }
    return [word for name, value in words.items() for word in ("-X", f"{name}={value}")]


if __name__ == "__main__":
    run({"produce": produce, "consume": consume, "seek": seek, "group": group, "access": access})
