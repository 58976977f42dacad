"""Encode and decode Kafka's small text and JSON files, without I/O.

Offset checkpoints: line 1 version `0`, line 2 the number of entries, then `topic partition offset`;
leader epochs: `epoch offset`; an empty file has no entries. The last entry of ours is a checksum of
the file before it, under a name that no topic can have or an epoch that no log reaches: Kafka
ignores it, and a flipped digit is detected (0067). Anything else raises MalformedFile: callers use
what is safe instead (offset 0, epochs from the batches) or refuse the directory; they never use
part of a file.
"""

import base64
import binascii
import json
import uuid
from collections.abc import Iterable, Mapping
from itertools import pairwise

from crc32c import crc32c
from tidemark_protocol.ids import BrokerEpoch, LeaderEpoch, Offset, TopicId

HIGH_WATERMARKS = "replication-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANED_TO = "cleaner-offset-checkpoint"
FRAMES_CHECKED_TO = "tidemark-frames-checkpoint"  # ours: compacted by a version that checks frames
LEADER_EPOCHS = "leader-epoch-checkpoint"
CORRUPTION_MARKER = "tidemark-damage.json"  # ours, beside Kafka's
OFFSETS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANED_TO, FRAMES_CHECKED_TO)
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_STOP = ".kafka_cleanshutdown"
LOCK = ".lock"
HIGHEST_EPOCHS = "tidemark-epochs.json"  # ours too

TopicPartition = tuple[str, int]
_CHECKSUM = ("~crc32c", 0)  # in the place of a topic and its partition
# In the place of an epoch and its start: Kafka, and versions before, cut epochs past a log's end.
_CHECKSUM_EPOCH = LeaderEpoch(2**31 - 1)
_CHECKSUM_OFFSETS = 2**62


class MalformedFile(ValueError):
    """An error: a checkpoint cannot be decoded completely."""


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    data = _with_room_for_checksum(
        f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()
    )
    topic, partition = _CHECKSUM
    return data + f"{topic} {partition} {crc32c(data)}\n".encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, Offset]:
    """Decode an offset checkpoint; one without a checksum is Kafka's or of an earlier version."""
    offsets: dict[TopicPartition, Offset] = {}
    for topic, partition, offset in _decode(data, 3):
        offsets[topic, _natural(partition)] = Offset(_natural(offset))
    checksum = offsets.pop(_CHECKSUM, None)
    if checksum is not None:
        _check(data, checksum)
    return offsets


def encode_epochs(entries: Iterable[tuple[LeaderEpoch, Offset]]) -> bytes:
    data = _with_room_for_checksum(f"{epoch} {start_offset}" for epoch, start_offset in entries)
    return data + f"{_CHECKSUM_EPOCH} {_CHECKSUM_OFFSETS + crc32c(data)}\n".encode()


def decode_epochs(data: bytes) -> list[tuple[LeaderEpoch, Offset]]:
    """Decode leader epochs; a file without a checksum is Kafka's or of an earlier version."""
    entries = [
        (LeaderEpoch(_natural(epoch)), Offset(_natural(start_offset)))
        for epoch, start_offset in _decode(data, 2)
    ]
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if next_epoch <= epoch or next_start <= start:
            raise MalformedFile(f"epoch {next_epoch}@{next_start} after {epoch}@{start}")
    if entries and (entries[-1][0] == _CHECKSUM_EPOCH or entries[-1][1] >= _CHECKSUM_OFFSETS):
        epoch, start = entries.pop()
        if epoch != _CHECKSUM_EPOCH:
            raise MalformedFile(f"expected epoch {_CHECKSUM_EPOCH} of the checksum, found {epoch}")
        _check(data, start - _CHECKSUM_OFFSETS)
    return entries


def encode_topic_id(topic_id: TopicId) -> str:
    """Return Kafka's spelling of a topic id: base64url of the 16 bytes, without padding."""
    return base64.urlsafe_b64encode(uuid.UUID(topic_id).bytes).rstrip(b"=").decode()


def decode_topic_id(text: str) -> TopicId:
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
        return TopicId(str(uuid.UUID(bytes=raw)))
    except (ValueError, binascii.Error) as error:
        raise MalformedFile(f"expected a topic id of 22 characters, found {text!r}") from error


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {encode_topic_id(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> TopicId:
    lines = _text(data).splitlines()
    if len(lines) != 2 or lines[0] != "version: 0" or not lines[1].startswith("topic_id: "):
        raise MalformedFile(f"expected 'version: 0' and 'topic_id: ...', found {lines[:2]}")
    return decode_topic_id(lines[1].removeprefix("topic_id: "))


def encode_properties(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in sorted(properties.items())).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    properties: dict[str, str] = {}
    for line in _text(data).splitlines():
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise MalformedFile(f"expected name=value, found {line!r}")
        properties[name.strip()] = value.strip()
    return properties


def encode_clean_stop(broker_epoch: BrokerEpoch) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode()


def decode_clean_stop(data: bytes) -> BrokerEpoch:
    return BrokerEpoch(_json_numbers(data, "brokerEpoch")["brokerEpoch"])


def encode_highest_epochs(broker_epoch: int, controller_epoch: int) -> bytes:
    return json.dumps(
        {"version": 0, "brokerEpoch": broker_epoch, "controllerEpoch": controller_epoch}
    ).encode()


def decode_highest_epochs(data: bytes) -> tuple[int, int]:
    numbers = _json_numbers(data, "brokerEpoch", "controllerEpoch")
    return numbers["brokerEpoch"], numbers["controllerEpoch"]


def _json_numbers(data: bytes, *names: str) -> dict[str, int]:
    try:
        content = json.loads(data)
    except ValueError as error:
        raise MalformedFile(f"expected JSON, found {data[:64]!r}") from error
    if not isinstance(content, dict) or content.get("version") != 0:
        raise MalformedFile(f"expected version 0, found {data[:64]!r}")
    numbers = {}
    for name in names:
        value = content.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise MalformedFile(f"expected a number {name}, found {value!r}")
        numbers[name] = value
    return numbers


def _with_room_for_checksum(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "".join(f"{line}\n" for line in ("0", str(len(lines) + 1), *lines)).encode()


def _check(data: bytes, checksum: int) -> None:
    """Raise MalformedFile if `checksum` is not that of all lines before the last."""
    found = crc32c(data[: data.rindex(b"\n", 0, -1) + 1])
    if found != checksum:
        raise MalformedFile(f"expected checksum {checksum}, found {found}")


def _decode(data: bytes, field_count: int) -> list[list[str]]:
    lines = _text(data).splitlines()
    if not lines:
        return []
    if not data.endswith(b"\n"):  # torn: the last number may have lost digits
        raise MalformedFile(f"expected a line end after the last entry, found {data[-32:]!r}")
    if lines[0] != "0":
        raise MalformedFile(f"expected version 0, found {lines[0]!r}")
    if len(lines) < 2 or _natural(lines[1]) != len(lines) - 2:
        raise MalformedFile(f"expected {lines[1:2]} entries, found {len(lines) - 2}")
    entries = [line.split() for line in lines[2:]]
    for line, fields in zip(lines[2:], entries, strict=True):
        if len(fields) != field_count:
            raise MalformedFile(f"expected {field_count} fields, found {line!r}")
    return entries


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise MalformedFile(f"expected a number from 0 on, found {text!r}")
    return int(text)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedFile(f"expected text, found {data[:32]!r}") from error
