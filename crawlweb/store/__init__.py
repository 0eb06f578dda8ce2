"""Store: what was fetched, on disk. `warc` keeps every exchange, byte for byte, before anyone acts on it."""
