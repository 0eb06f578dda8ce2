"""The tree of errors. Library errors are wrapped where they enter; what stops a start is one line."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(r"(?<=://)[^/?#\s]*@")


def without_credentials(text: str) -> str:
    """`text` without user name and password of the URLs in it."""
    return _CREDENTIALS.sub("", text) if "@" in text else text


class CrawlwebError(Exception):
    """Anything that crawlweb raises on purpose."""


class ConfigError(CrawlwebError):
    """A setting, a spider argument or an environment that the crawl cannot start with; the text names it and its value, no password."""

    def __init__(self, message: str) -> None:
        super().__init__(without_credentials(message))


class FrontierError(CrawlwebError):
    """Redis answered with an error, or not at all."""


class FrontierFull(FrontierError):
    """Redis is full, and took nothing of a call that can wait."""


class StoreError(CrawlwebError):
    """A page could not be written to the WARC folder."""


class FetchError(CrawlwebError):
    """A request that brought no usable response. `kind` is a row of `policy.retry.FAILURES`."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self._message = kind, message

    def __reduce__(self) -> tuple[type[FetchError], tuple[str, str]]:
        return FetchError, (self.kind, self._message)


class LeaseExpired(CrawlwebError):
    """The lease ends before the fetch could: nothing was requested, the URL goes back."""


class ConnectionWasClosed(CrawlwebError):
    """A kept connection was closed by the server while a request went out: it may have been seen, and the URL goes back."""
