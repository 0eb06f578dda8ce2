"""The spider and the settings of plain Scrapy, with scheduler, dupefilter and queue of scrapy-redis as its README tells: Redis holds a set
of fingerprints and a sorted set of pickled requests (its default queue). REDIS_URL comes from the command line."""

import runpy
import sys
from pathlib import Path

_PLAIN = Path(__file__).resolve().parents[1] / "plain_scrapy"
sys.path.insert(1, str(_PLAIN))
globals().update({name: value for name, value in runpy.run_path(str(_PLAIN / "settings.py")).items() if name.isupper()})

SCHEDULER = "scrapy_redis.scheduler.Scheduler"
DUPEFILTER_CLASS = "scrapy_redis.dupefilter.RFPDupeFilter"
SCHEDULER_PERSIST = True  # nothing is deleted when it stops
