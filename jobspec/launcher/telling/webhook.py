"""A POST to a webhook. Its URL is a secret: no problem that is returned here names it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobctl.jobspec.launcher.records import record
from jobctl.jobspec.launcher.telling.payloads import payload

if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

    from jobctl.jobspec.launcher.telling.notification import Notification

WEBHOOK_TIMEOUT = 10.0  # seconds that a webhook gets to answer
# Answers that concern the moment, and no message in particular.
_LATER = frozenset({408, 425, 429})
_LONGEST_WAIT = 3600.0


@record
class DeliveryResult:
    """What became of a message: it was taken, or why not. `refused`: this message was, the next one may not be.

    `wait` is how many seconds the other side asked to be left alone. `answer` says in words who took it. Neither that
    nor `problem` holds a secret.
    """

    problem: Optional[str] = None
    refused: bool = False
    wait: Optional[float] = None
    answer: Optional[str] = None

    @property
    def done(self) -> bool:
        """Whether the message was taken."""
        return self.problem is None


def post_to(url: str, form: str, message: Notification) -> DeliveryResult:
    """Tell the webhook at `url` in the format `form`; it has taken the message if it answers with 2xx."""
    import urllib.request
    from http.client import HTTPException, InvalidURL
    from urllib.error import HTTPError, URLError

    if not is_url(url):  # urllib would open files, too
        return DeliveryResult("its URL does not begin with http:// or https://", refused=True)
    body, headers = payload(form, message)
    try:
        url, login = without_login(url)
        headers = {"User-Agent": "jobctl", "X-Jobctl-Id": message.id, **headers, **login}
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        with url_opener().open(request, timeout=WEBHOOK_TIMEOUT) as answer:
            answer.read(1 << 16)
            return DeliveryResult(answer="it answered %s" % words_of_status(answer.status))
    except HTTPError as error:
        with error:
            return answered_with(error.code, error.headers)
    except (InvalidURL, ValueError):
        return DeliveryResult("its URL is not valid", refused=True)
    except URLError as error:
        if isinstance(error.reason, str):  # `no host given`
            return DeliveryResult("its URL is not valid", refused=True)
        return DeliveryResult(words_of_problem(error.reason))
    except (OSError, HTTPException) as error:
        return DeliveryResult(words_of_problem(error))


def is_url(text: str) -> bool:
    """Say whether a secret is the URL of a webhook."""
    return text.lower().startswith(("http://", "https://")) and text.isprintable() and " " not in text


def without_login(url: str) -> Tuple[str, Dict[str, str]]:
    """Return a URL without user and password, and the header that takes their place: urllib supports neither."""
    from base64 import b64encode
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    login, at, place = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    token = b64encode(unquote(login).encode()).decode()
    return parts._replace(netloc=place).geturl(), {"Authorization": "Basic %s" % token}


def url_opener() -> Any:
    """Return what opens a URL, and follows no redirect."""
    import urllib.request

    class Stay(urllib.request.HTTPRedirectHandler):
        """Follows no redirect: a POST would become a GET, which tells nobody anything."""

        def redirect_request(self, *args: Any, **kwargs: Any) -> None:
            return None

    return urllib.request.build_opener(Stay)


def words_of_status(code: int) -> str:
    """Return a status of HTTP for people."""
    from http import HTTPStatus

    try:
        return "%d %s" % (code, HTTPStatus(code).phrase)
    except ValueError:
        return str(code)


def answered_with(code: int, headers: Any) -> DeliveryResult:
    """Return what an answer that is not 2xx means."""
    asked = (headers.get("Retry-After") if headers else None) or ""
    wait = min(float(asked), _LONGEST_WAIT) if asked.isdecimal() and asked.isascii() else None
    remedy = "; redirects are not followed: use the URL where it leads" if 300 <= code < 400 else ""
    problem = "it answered %s%s" % (words_of_status(code), remedy)
    return DeliveryResult(problem, refused=code < 500 and code not in _LATER, wait=wait)


def words_of_problem(error: object) -> str:
    """Return what went wrong, in words of the system: those of other exceptions may quote the URL."""
    import socket
    import ssl
    from http.client import BadStatusLine

    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not valid: %s" % error.verify_message
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
            return "it does not speak TLS: is its URL one with http://?"
        return "no encrypted connection: %s" % (error.reason or type(error).__name__)
    if isinstance(error, (TimeoutError, socket.timeout)):  # two things before Python 3.10
        return "it did not answer within %g s" % WEBHOOK_TIMEOUT
    if isinstance(error, socket.gaierror):
        return "the name of its server is not known"
    if isinstance(error, OSError) and error.strerror and error.errno:
        return error.strerror
    if isinstance(error, ConnectionError):  # `RemoteDisconnected` too
        return "it closed the connection, and gave no answer"
    if isinstance(error, BadStatusLine):
        return "what it answered is not HTTP"
    return "the connection failed (%s)" % type(error).__name__
