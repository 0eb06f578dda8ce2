"""Many workers on many machines: SCRAPY_SETTINGS_MODULE=settings.cluster, REDIS_URL and CRAWLWEB_SPILL_URL in the environment."""

import os

from settings.base import *  # noqa: F403

REDIS_URL = os.environ.get("REDIS_URL", "")
if not REDIS_URL:
    raise SystemExit("crawlweb: settings.cluster needs REDIS_URL in the environment, e.g. redis://frontier.internal:6379/0")
CRAWLWEB_SPILL_URL = os.environ.get("CRAWLWEB_SPILL_URL", "")  # where all machines reach it: docs/operating.md
CRAWLWEB_PARTITIONS = 1024
CRAWLWEB_EXPECTED_URLS = 1_000_000_000
CRAWLWEB_MODE = "continuous"
