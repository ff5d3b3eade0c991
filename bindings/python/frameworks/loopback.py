"""No network but loopback: what a package sends elsewhere is refused, and noted."""

from __future__ import annotations

import ipaddress
import os
import sys
from typing import Any

#: Where a package wanted to go.
attempts: list[str] = []


def allow_nothing_else() -> None:
    """From now on and for good."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        # What goes through a proxy would look like loopback, or hide where it goes.
        os.environ.pop(name, None)
        os.environ.pop(name.lower(), None)
    sys.addaudithook(_refuse)


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event in ("socket.connect", "socket.sendto") and isinstance(args[1], tuple):
        host = args[1][0]
    else:
        return
    if not _is_loopback(host):
        attempts.append(str(host))
        raise ConnectionRefusedError(f"a recipe may not connect to {host}")


def _is_loopback(host: object) -> bool:
    if host in (None, "", b"", "localhost", b"localhost"):
        return True
    text = host.decode() if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False
