"""A POST to a webhook. Its URL is a secret: no problem that is returned here names it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobctl.jobspec.deploy.channels.payloads import payload
from jobctl.jobspec.deploy.model.notification import DeliveryResult, Notification

if TYPE_CHECKING:
    from email.message import Message

TIMEOUT = 10.0  # seconds that a webhook gets to answer
# Answers that concern the moment, and no message in particular.
_LATER = frozenset({408, 425, 429})
_LONGEST_WAIT = 3600.0


def post(how: dict[str, Any], message: Notification) -> DeliveryResult:
    """Tell the webhook; it has taken the message if it answers with 2xx."""
    import urllib.request
    from http.client import HTTPException, InvalidURL
    from urllib.error import HTTPError, URLError

    url = str(how["url"])
    if not is_url(url):  # urllib would open files, too
        return DeliveryResult("its URL does not begin with http:// or https://", refused=True)
    body, headers = payload(str(how.get("format", "json")), message)
    try:
        url, login = _without_login(url)
        headers = {"User-Agent": "jobctl", "X-Jobctl-Id": message.id, **headers, **login}
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        with _opener().open(request, timeout=TIMEOUT) as answer:
            answer.read(1 << 16)
            return DeliveryResult(answer=f"it answered {_status(answer.status)}")
    except HTTPError as error:
        with error:
            return _answered(error.code, error.headers)
    except (InvalidURL, ValueError):
        return DeliveryResult("its URL is not valid", refused=True)
    except URLError as error:
        if isinstance(error.reason, str):  # `no host given`
            return DeliveryResult("its URL is not valid", refused=True)
        return DeliveryResult(_words(error.reason))
    except (OSError, HTTPException) as error:
        return DeliveryResult(_words(error))


def is_url(text: str) -> bool:
    """Say whether a secret is the URL of a webhook."""
    return text.lower().startswith(("http://", "https://")) and text.isprintable() and " " not in text


def _without_login(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL without user and password, and the header that takes their place: urllib supports neither."""
    from base64 import b64encode
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    login, at, place = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    token = b64encode(unquote(login).encode()).decode()
    return parts._replace(netloc=place).geturl(), {"Authorization": f"Basic {token}"}


def _opener() -> Any:
    import urllib.request

    class _Stay(urllib.request.HTTPRedirectHandler):
        """Follows no redirect: a POST would become a GET, which tells nobody anything."""

        def redirect_request(self, *args: Any, **kwargs: Any) -> None:
            return None

    return urllib.request.build_opener(_Stay)


def _status(code: int) -> str:
    from http import HTTPStatus

    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)


def _answered(code: int, headers: Message | None) -> DeliveryResult:
    asked = (headers.get("Retry-After") if headers else None) or ""
    wait = min(float(asked), _LONGEST_WAIT) if asked.isdecimal() and asked.isascii() else None
    remedy = "; redirects are not followed: use the URL where it leads" if 300 <= code < 400 else ""
    return DeliveryResult(f"it answered {_status(code)}{remedy}", refused=code < 500 and code not in _LATER, wait=wait)


def _words(error: object) -> str:
    """Return what went wrong, in words of the system: those of other exceptions may quote the URL."""
    import socket
    import ssl
    from http.client import BadStatusLine

    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not valid: {error.verify_message}"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "HTTP_REQUEST"):
            return "it does not speak TLS: is its URL one with http://?"
        case ssl.SSLError():
            return f"no encrypted connection: {error.reason or type(error).__name__}"
        case TimeoutError():
            return f"it did not answer within {TIMEOUT:g} s"
        case socket.gaierror():
            return "the name of its server is not known"
        case OSError() if error.strerror and error.errno:
            return error.strerror
        case ConnectionError():  # `RemoteDisconnected` too
            return "it closed the connection, and gave no answer"
        case BadStatusLine():
            return "what it answered is not HTTP"
    return f"the connection failed ({type(error).__name__})"
