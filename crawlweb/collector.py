"""Scrapy's stats in memory, without what warns of an outdated argument at each count: a page counts some twenty times."""

from __future__ import annotations

from scrapy.statscollectors import MemoryStatsCollector


class StatsCollector(MemoryStatsCollector):
    __getattribute__ = object.__getattribute__  # Scrapy's looks for a wrapped method first
