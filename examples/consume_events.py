"""Reads page.fetched events as a member of a consumer group, each event once in effect.

    python examples/consume_events.py redis://127.0.0.1:6379/0 web --group index --consumer $(hostname)-$$

Prints a line of JSON an event. Events come at least once: `handled` remembers the ids of the last ones; a consumer that writes to a
database makes the id, or url_key and fetched_at, a unique key there instead. An event is acknowledged after it was handled, so that
nothing is lost when this process is killed: another consumer of the group takes over what it had (XAUTOCLAIM).
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import redis

BATCH = 100
BLOCK_MS = 1000
REMEMBERED = 100_000  # as many as the stream keeps (CRAWLWEB_EVENTS_MOST)


class Consumer:
    """`idle_ms`: what another consumer has had for so long, unacknowledged, is taken over."""

    def __init__(self, client: redis.Redis, crawl: str, group: str, name: str, idle_ms: int) -> None:
        self._client, self._stream, self._group, self._name, self._idle_ms = client, f"{{{crawl}}}:events", group, name, idle_ms
        self._handled: OrderedDict[str, None] = OrderedDict()
        try:
            client.xgroup_create(self._stream, group, id="0", mkstream=True)  # from the oldest that is kept; "$": from now on
        except redis.ResponseError as e:
            if not str(e).startswith("BUSYGROUP"):
                raise

    def events(self) -> Iterator[list[tuple[str, dict[str, str]]]]:
        """Batches; what a generator's `next` is called after is acknowledged."""
        while True:
            _, left, *_ = self._client.xautoclaim(self._stream, self._group, self._name, self._idle_ms, count=BATCH)
            rows = [(entry, fields) for entry, fields in left if fields]  # others were trimmed before anybody handled them
            if not rows:
                answer: Any = self._client.xreadgroup(self._group, self._name, {self._stream: ">"}, BATCH, BLOCK_MS)
                rows = answer[0][1] if answer else []
            yield [(entry, fields) for entry, fields in rows if self._is_news(fields)]
            if rows:
                self._client.xack(self._stream, self._group, *(entry for entry, _ in rows))

    def _is_news(self, fields: dict[str, str]) -> bool:
        event = fields.get("id", "")
        if event in self._handled:
            return False
        self._handled[event] = None
        if len(self._handled) > REMEMBERED:
            self._handled.popitem(last=False)
        return fields.get("type") == "page.fetched"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of Redis, as REDIS_URL")
    parser.add_argument("crawl", help="CRAWLWEB_CRAWL")
    parser.add_argument("--group", default="example")
    parser.add_argument("--consumer", default="1")
    parser.add_argument("--idle-ms", type=int, default=60_000)
    options = parser.parse_args()
    ending: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: ending.append(number))
    with redis.Redis.from_url(options.url, decode_responses=True, encoding_errors="replace") as client:
        for batch in Consumer(client, options.crawl, options.group, options.consumer, options.idle_ms).events():
            for entry, fields in batch:
                print(json.dumps({"entry": entry, **fields}, ensure_ascii=False))
            sys.stdout.flush()
            if ending and not batch:
                break


if __name__ == "__main__":
    main()
