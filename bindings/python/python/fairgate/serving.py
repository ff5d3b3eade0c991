"""The metrics of the program's schedulers over HTTP, for Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .scheduler import Scheduler


class MetricsServer:
    """Answers ``GET /metrics`` until it is closed; on a thread of its own."""

    def __init__(self, port: int, host: str, schedulers: Callable[[], Iterable[Scheduler]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.split("?")[0] != "/metrics":
                    self.send_error(404, "there is /metrics")
                    return
                body = merged(scheduler.prometheus() for scheduler in schedulers()).encode()
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        #: Where it listens; of port 0, the port that it was given.
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="fairgate-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def merged(expositions: Iterable[str]) -> str:
    """The metrics of several schedulers as one text: each metric's samples stand together, as Prometheus wants them."""
    metrics: dict[str, list[str]] = {}
    for text in expositions:
        for line in text.splitlines():
            if line.startswith("# HELP "):
                its = metrics.setdefault(line, [])
            elif not line.startswith("# TYPE ") or line not in its:
                its.append(line)
    return "".join(f"{help}\n" + "".join(f"{line}\n" for line in lines) for help, lines in metrics.items())
