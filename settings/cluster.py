"""Many workers on many machines: SCRAPY_SETTINGS_MODULE=settings.cluster, REDIS_URL in the environment."""

import os

from settings.base import *  # noqa: F403

REDIS_URL = os.environ["REDIS_URL"]
CRAWLWEB_PARTITIONS = 1024
CRAWLWEB_MODE = "continuous"
