"""The room that decides.

Pure functions and small values: they get what they judge by (the URL, the time, the random source) and return the
decision. Nothing here opens a socket or knows Redis; the frontier enforces the numbers, the components carry them.

hosts       whose turn a URL waits for: the politeness key
canonical   what is fetched, and the key under which a URL is seen once
scope       whether a URL belongs to this crawl at all
priority    the front queue in which a discovered URL waits
"""
