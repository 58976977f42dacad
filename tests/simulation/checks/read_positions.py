"""Where a reader goes on in each partition of its topic, and how it came there."""


class ReadPositions:
    def __init__(self) -> None:
        self._offsets: dict[int, int] = {}
        self._is_reset: dict[int, bool] = {}
        self._sought: dict[int, int] = {}  # log starts; the next leader's may be an earlier one

    def offset(self, partition: int) -> int:
        return self._offsets.get(partition, 0)

    def begin_anew(self, partition: int) -> None:
        self._offsets[partition] = 0
        self._is_reset[partition] = True
        self._sought.pop(partition, None)

    def seek(self, partition: int, offset: int, log_start_offset: int) -> None:
        """`offset` is out of range. Below the log start: go on there. Above the end: what was read
        is gone; begin anew."""
        if offset >= log_start_offset:
            self._is_reset[partition] = True
        else:
            self._sought[partition] = log_start_offset
        self._offsets[partition] = max(0, log_start_offset)

    def read_to(self, partition: int, offset: int) -> None:
        self._offsets[partition] = offset

    def take_reset(self, partition: int) -> bool:
        """Whether it did not go on from where it was. Asked once for each poll."""
        return self._is_reset.pop(partition, False)

    def take_log_start(self, partition: int, reported: int) -> int:
        """What is below may be gone: by this poll's answer, or by the one that was sought."""
        return max(reported, self._sought.pop(partition, 0))
