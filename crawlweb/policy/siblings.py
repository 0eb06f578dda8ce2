"""The other spellings of a URL that has the same canonical URL: with and without slash, `www.`, http and https.

We fetch a URL as it was found. Where that spelling fails, the page may stand under another one that nobody will find any more, since its
key has been seen: one other spelling is tried, once.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from .hosts import host_of_name, split_port


def slash_sibling(url: str) -> str | None:
    """With a slash at the end of the path, or without; None for the root, names of files, URLs with a query and paths that end in two."""
    parts = urlsplit(url)
    if parts.query or parts.path in ("", "/") or parts.path.endswith("//") or "." in parts.path.rstrip("/").rpartition("/")[2]:
        return None
    path = parts.path[:-1] if parts.path.endswith("/") else parts.path + "/"
    return f"{parts.scheme}://{parts.netloc}{path}" if path else None


def origin_sibling(url: str) -> str | None:
    """https for http on the usual port; else with `www.` or without, where that is the host's own name."""
    parts = urlsplit(url)
    name, port = split_port(parts.netloc)
    if "@" in name:
        return None
    rest = url[len(parts.scheme) + 3 + len(parts.netloc) :]
    if parts.scheme == "http" and not port:
        return f"https://{name}{rest}"
    bare = name.removeprefix("www.")
    try:
        if host_of_name("www." + bare) != bare:
            return None
    except ValueError:  # an address
        return None
    return f"{parts.scheme}://{bare if name != bare else 'www.' + bare}{':' if port else ''}{port}{rest}"
