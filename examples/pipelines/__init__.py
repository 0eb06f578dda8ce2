"""Item pipelines for downstream teams (docs/extending.md). They lose nothing and store at least once: `process_item` returns, and so the
page is complete, only when the item is safe."""
