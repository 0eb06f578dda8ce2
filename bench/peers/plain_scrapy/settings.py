"""Plain Scrapy as its documentation tells a broad crawl to be, with memory queues and uvloop, and without what costs extra. What it may
hold of pages on their way through the spider stays at its 5 MB: with more it fetches ahead of what it works on, and is no faster."""

BOT_NAME = "plain"
SPIDER_MODULES = ["spider"]
TWISTED_DNS_RESOLVER = "resolver.LoopbackResolver"
ASYNCIO_EVENT_LOOP = "uvloop.Loop"
SCHEDULER_PRIORITY_QUEUE = "scrapy.pqueues.DownloaderAwarePriorityQueue"
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 0
COOKIES_ENABLED = False
TELNETCONSOLE_ENABLED = False
RETRY_ENABLED = False
LOG_LEVEL = "INFO"
