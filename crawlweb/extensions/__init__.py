"""Scrapy extensions: what an operator sees of a running crawl."""
