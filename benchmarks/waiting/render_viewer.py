"""A viewer of a live page, to run in a separate process; it confirms pictures without drawing.

python -m benchmarks.waiting.render_viewer URL
"""

from __future__ import annotations

import json
import sys

from agym.core._system.extras import require


def view(url: str) -> None:
    """Receive and confirm messages until the page ends."""
    client = require("websockets.sync.client", "watch")
    address, _, target = url.removeprefix("http://").partition("/")
    with client.connect(f"ws://{address}/live{target}", max_size=None) as page:
        for message in page:
            kind = "shown" if isinstance(message, bytes) else "here"
            page.send(json.dumps({"type": kind}))


if __name__ == "__main__":
    view(sys.argv[1])
