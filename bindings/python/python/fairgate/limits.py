"""What a provider's refusal looks like in Python: the answer behind an error, whichever package raised it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Statuses that may say: too much now, come back later.
STATUSES = frozenset((429, 503, 529))
#: How much of a refusal's body is read.
BODY_BYTES_MAX = 64 << 10

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True)
class ProviderAnswer:
    """A provider's answer, as far as its limits are concerned."""

    status: int
    headers: Headers = field(default_factory=list)
    body: bytes = b""


#: An answer that says no more than that the provider took the call on.
TAKEN_ON = ProviderAnswer(200)


def headers_of(headers: object) -> Headers:
    """Headers of httpx, requests, aiohttp or botocore, or a mapping, as pairs."""
    if headers is None:
        return []
    pairs: Iterable[tuple[Any, Any]]
    raw = getattr(headers, "raw", None)
    if isinstance(raw, list):
        pairs = raw
    elif hasattr(headers, "items"):
        pairs = headers.items()
    else:
        pairs = headers  # type: ignore[assignment]
    return [(_text(name), _bytes(value)) for name, value in pairs]


def answer_of(error: BaseException) -> ProviderAnswer | None:
    """The answer behind an error that may say that a limit was met; None where it is about something else.

    Read are errors of OpenAI's, Anthropic's and Google's packages, of LiteLLM, httpx, requests, aiohttp and botocore.
    """
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        return answer_of_botocore(response)
    status = _status(response, "status_code", "status") or _status(error, "status_code", "status", "code", "http_status")
    if status not in STATUSES:
        return None
    headers = getattr(response, "headers", None) or getattr(error, "headers", None)
    return ProviderAnswer(status, headers_of(headers), _body(response))


#: Codes by which Amazon's services say that it is too much.
_THROTTLED = frozenset(
    ("ThrottlingException", "Throttling", "TooManyRequestsException", "RequestLimitExceeded", "ServiceQuotaExceededException")
)


def answer_of_botocore(response: Mapping[str, Any]) -> ProviderAnswer | None:
    """The same for what botocore made of an answer."""
    about = response.get("ResponseMetadata") or {}
    code = (response.get("Error") or {}).get("Code")
    status = about.get("HTTPStatusCode")
    if code in _THROTTLED:
        status = 429
    elif code in ("ServiceUnavailableException", "ModelNotReadyException"):
        status = 503
    if status not in STATUSES:
        return None
    return ProviderAnswer(status, headers_of(about.get("HTTPHeaders")))


def _status(value: object, *names: str) -> int | None:
    for name in names:
        status = getattr(value, name, None)
        if isinstance(status, int) and not isinstance(status, bool):
            return int(status)
    return None


def _body(response: object) -> bytes:
    try:
        body = getattr(response, "content", b"")
    except Exception:
        # A stream that was not read: what the headers say must do.
        return b""
    return body[:BODY_BYTES_MAX] if isinstance(body, bytes) else b""


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("latin-1", "replace")
