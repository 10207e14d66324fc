"""A viewer of a live page, to run in a separate process; it confirms pictures without drawing.

python -m benchmarks.waiting.render_viewer URL
"""

from __future__ import annotations

import json
import socket
import sys

from agym.core._system.extras import require


def view(url: str) -> None:
    """Receive and confirm messages until the page ends."""
    wsproto = require("wsproto", "watch")
    events = require("wsproto.events", "watch")
    address, _, target = url.removeprefix("http://").partition("/")
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        browser = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        connection.sendall(browser.send(events.Request(host=address, target=f"/live{target}")))
        while data := connection.recv(1 << 16):
            browser.receive_data(data)
            for event in browser.events():
                if isinstance(event, events.CloseConnection):
                    return
                if isinstance(event, events.Message) and event.message_finished:
                    kind = "shown" if isinstance(event, events.BytesMessage) else "here"
                    answer = events.TextMessage(data=json.dumps({"type": kind}))
                    connection.sendall(browser.send(answer))


if __name__ == "__main__":
    view(sys.argv[1])
