"""What the committed records of one partition come to: of each key the newest, or nothing."""

from tidemark_broker.groups.offsets_topic import (
    CommittedOffset,
    GroupMetadata,
    MalformedGroupRecord,
    OffsetKey,
    decode_key,
    decode_metadata,
    decode_offset,
)


class Loading:
    """A record that cannot be read is passed over and counted: one must not hold up all groups.
    What its key said before it stays, so at worst a consumer reads some records again."""

    def __init__(self) -> None:
        self.offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self.groups: dict[str, GroupMetadata] = {}
        self.unreadable_records = 0

    def on_record(self, raw_key: bytes, value: bytes | None) -> None:
        try:
            self._note(raw_key, value)
        except MalformedGroupRecord:
            self.unreadable_records += 1

    def _note(self, raw_key: bytes, value: bytes | None) -> None:
        key = decode_key(raw_key)
        if key is None:
            return
        if isinstance(key, OffsetKey):
            offsets = self.offsets.setdefault(key.group_id, {})
            if value is None:
                offsets.pop((key.topic, key.partition), None)
            else:
                offsets[key.topic, key.partition] = decode_offset(value)
        elif value is None:
            self.groups.pop(key.group_id, None)
        else:
            self.groups[key.group_id] = decode_metadata(value)
