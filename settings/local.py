"""One machine, no server running beforehand: the default of scrapy.cfg."""

from settings.base import *  # noqa: F403
