"""Identify the owner of a volume by `meta.properties`, Kafka's file.

It is written when a broker takes an empty volume.
"""

import base64
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tidemark_protocol.ids import BrokerId

from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.errors import WrongVolume
from tidemark_broker.log.removed import LOG_NAME


class VolumeIdentity(NamedTuple):
    directory_id: str
    cluster_id: str  # "": not registered yet
    was_empty: bool = False


def identify(
    disk: Disk, path: Path, broker_id: BrokerId, new_uuid: Callable[[], uuid.UUID]
) -> VolumeIdentity:
    """Return the identity of a volume; an empty one becomes this broker's.

    Raises WrongVolume, OSError.
    """
    names = [name for name in disk.list_names(path) if name != "lost+found"]
    file = path / checkpoint_formats.META_PROPERTIES
    if file.name not in names:
        if any(LOG_NAME.match(name) for name in names):
            raise WrongVolume(path, f"{file.name} of broker {broker_id}", "none")
        encoded = base64.urlsafe_b64encode(new_uuid().bytes)
        made = VolumeIdentity(encoded.rstrip(b"=").decode(), "", was_empty=True)
        write_identity(disk, path, broker_id, made)
        return made
    try:
        properties = checkpoint_formats.decode_properties(disk.read(file))
    except checkpoint_formats.MalformedFile as error:
        raise WrongVolume(path, f"a readable {file.name}", str(error)) from error
    if properties.get("version") != "1" or properties.get("node.id") != str(broker_id):
        raise WrongVolume(
            path,
            f"version 1, node.id {broker_id}",
            f"version {properties.get('version')}, node.id {properties.get('node.id')}",
        )
    directory_id = properties.get("directory.id", "")
    if not directory_id:
        raise WrongVolume(path, "a directory.id", "none")
    return VolumeIdentity(directory_id, properties.get("cluster.id", ""))


def write_identity(disk: Disk, path: Path, broker_id: BrokerId, identity: VolumeIdentity) -> None:
    """Write the identity, durably.

    Raises OSError.
    """
    properties = {
        "version": "1",
        "node.id": str(broker_id),
        "directory.id": identity.directory_id,
    }
    if identity.cluster_id:
        properties["cluster.id"] = identity.cluster_id
    data = checkpoint_formats.encode_properties(properties)
    disk.write_atomically(path / checkpoint_formats.META_PROPERTIES, data, durable=True)
