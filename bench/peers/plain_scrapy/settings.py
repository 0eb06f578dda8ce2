"""Plain Scrapy as its documentation tells a broad crawl to be, with memory queues and uvloop, without what costs extra, and with room for
large pages on their way through the spider (5 MB by default)."""

BOT_NAME = "plain"
SPIDER_MODULES = ["spider"]
TWISTED_DNS_RESOLVER = "resolver.LoopbackResolver"
ASYNCIO_EVENT_LOOP = "uvloop.Loop"
SCHEDULER_PRIORITY_QUEUE = "scrapy.pqueues.DownloaderAwarePriorityQueue"
SCRAPER_SLOT_MAX_ACTIVE_SIZE = 100_000_000
ROBOTSTXT_OBEY = True
CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 0
COOKIES_ENABLED = False
TELNETCONSOLE_ENABLED = False
RETRY_ENABLED = False
LOG_LEVEL = "INFO"
