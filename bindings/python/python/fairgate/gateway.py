"""A gateway over HTTP: one question at a time on each thread's own connection, tried again a bounded number of times."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from .errors import GatewayError

#: For how long an answer may be awaited, in seconds: longer than the gateway holds any question.
_TIMEOUT = 45.0
#: How often a question is tried where the gateway cannot be reached or says to come back soon.
_TRIES = 4
#: Codes that are final, although their status is one that often means: come back soon.
_FINAL_CODES = ("provider_limited", "provider_out", "deadline_passed", "queue_timeout")


class Gateway:
    """Where a gateway is, and who asks."""

    def __init__(self, url: str, key: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the gateway's url must be like http://127.0.0.1:8080, not {url!r}")
        if not key or not key.isascii() or not key.isprintable():
            raise ValueError("the key must be a key of the gateway, as `fairgate key create` prints it")
        self.url = url
        self._parts = parts
        self._key = key
        self._local = threading.local()
        #: How the gateway process begins the ids that it gives.
        self.process: str | None = None

    def __repr__(self) -> str:
        return f"<fairgate gateway at {self.url}>"

    def anew(self) -> Gateway:
        """The same without open connections: in a child process."""
        return Gateway(self.url, self._key)

    def disconnect(self) -> None:
        """Closes this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def ask(self, method: str, path: str, body: object = None, tries: int = _TRIES) -> dict[str, Any]:
        """The JSON that the gateway answers. All questions about leases may be repeated."""
        for attempt in range(1, tries + 1):
            try:
                return self._once(method, path, body)
            except GatewayError as error:
                soon = error.status in (0, 502, 503, 504) and error.code not in _FINAL_CODES
                if attempt == tries or not soon:
                    raise
                time.sleep(min(error.retry_after or 0.1 * 4**attempt / 4, 2.0))
        raise AssertionError("the last try returns or raises")

    def _once(self, method: str, path: str, body: object) -> dict[str, Any]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        payload = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, self._parts.path.rstrip("/") + path, payload, headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.disconnect()
            raise GatewayError(
                "unreachable", f"the gateway at {self.url} cannot be reached: {error or type(error).__name__}"
            ) from error
        request_id = response.getheader("x-fairgate-request-id") or ""
        answer = _parsed(text)
        if response.status == 200 and isinstance(answer, dict):
            if path.startswith("/v1/leases?"):
                self.process = request_id.rpartition("-")[0] or None
            return answer
        raise _refusal(response.status, response.getheader("retry-after"), answer, self.url)

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT)
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT)


def _parsed(text: bytes) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _refusal(status: int, retry_after: str | None, answer: object, url: str) -> GatewayError:
    error = answer.get("error") if isinstance(answer, dict) else None
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
    if not isinstance(error, dict):
        message = f"what answers at {url} is no gateway of fairgate: status {status}"
        return GatewayError("no_gateway", message, status, seconds)
    return GatewayError(str(error.get("code")), str(error.get("message")), status, seconds)
