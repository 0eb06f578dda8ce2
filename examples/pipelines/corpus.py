"""A text corpus for training: main texts in zstd shards of JSON lines, a document a line.

    ITEM_PIPELINES = {"examples.pipelines.corpus.CorpusPipeline": 300}
    CORPUS_DIR = "/data/corpus"
    CORPUS_LANGUAGES = ["en", "de"]  # ISO 639-1, as in the item; empty: all, unknown ones too
    CORPUS_MIN_CHARS = 500
    CORPUS_FILE_ITEMS = 10_000  # documents of a shard

A document: `{"text": …, "url": …, "title": …, "language": …, "fetched_at": …, "url_key": …, "fingerprint": …}`. Left out, and counted in
the stats `corpus/skipped/<why>`: duplicates, soft 404s, pages that say noindex, cut ones, ones that are as they were at their last fetch
(an older shard has them, unless this pipeline came later than they did), short ones, other languages. Equal texts are in a shard once.

    zstd -dc /data/corpus/*.jsonl.zst | jq -r .text
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .spool import SpoolPipeline, whole_or_not_at_all

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from itemadapter import ItemAdapter
    from scrapy.crawler import Crawler
    from scrapy.statscollectors import StatsCollector
    from typing_extensions import Self

LEVEL = 10
META = ("url", "title", "language", "fetched_at", "url_key", "fingerprint")


class CorpusPipeline(SpoolPipeline):
    prefix, suffix = "CORPUS", ".jsonl.zst"
    file_items = 10_000

    languages: frozenset[str] = frozenset()
    min_chars = 200
    stats: StatsCollector | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        pipeline = super().from_crawler(crawler)
        pipeline.languages = frozenset(crawler.settings.getlist("CORPUS_LANGUAGES"))
        pipeline.min_chars = crawler.settings.getint("CORPUS_MIN_CHARS", cls.min_chars)
        pipeline.stats = crawler.stats
        return pipeline

    def row(self, item: ItemAdapter) -> dict[str, Any] | None:
        text = item.get("main_text") or ""
        why = self._why_not(item, text)
        if self.stats:
            self.stats.inc_value(f"corpus/skipped/{why}" if why else "corpus/documents")
        return None if why else {"text": text, **{name: item.get(name) for name in META}}

    def _why_not(self, item: ItemAdapter, text: str) -> str:
        reasons = {
            "duplicate": item.get("duplicate_of"),
            "soft_404": item.get("soft_404"),
            "noindex": item.get("noindex"),
            "truncated": item.get("truncated"),
            "unchanged": item.get("changed") is False,
            "short": len(text) < self.min_chars,
            "language": self.languages and item.get("language") not in self.languages,
        }
        return next((why for why, holds in reasons.items() if holds), "")

    def finish(self, spool: Path, finished: Path) -> None:
        with spool.open("rb") as lines, whole_or_not_at_all(finished) as part, zstd.open(part, "wb", level=LEVEL) as shard:
            for line in _once(lines):
                shard.write(line)
        spool.unlink()


def _once(lines: Iterable[bytes]) -> Iterable[bytes]:
    seen: set[bytes] = set()
    for line in lines:
        digest = hashlib.blake2b(json.loads(line)["text"].encode(), digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            yield line
