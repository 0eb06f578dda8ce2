"""Store: what was fetched, on disk. `warc` keeps every exchange, byte for byte, before anyone acts on it (`warc_records`, `revisits`), with
an index (`cdx`); `repair` finishes what a dead writer left (`files`); `upload` copies what is finished. `chunks`: long queues."""
