"""`python -m tests.traces [FILE...]`: the expected effects written anew, to be reviewed."""

import sys
from pathlib import Path

from tests.traces.reader import replayed, transcripts

for path in [Path(name) for name in sys.argv[1:]] or transcripts():
    text = path.read_text()
    replay = replayed(text)
    if replay.text != text:
        path.write_text(replay.text)
        print(f"{path.name}: rewritten, review it")
    for line in replay.broken:
        print(f"{path.name}: {line}")
