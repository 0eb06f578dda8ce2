"""Plain Scrapy as its documentation tells a broad crawl to be, with memory queues and without what costs extra."""

BOT_NAME = "plain"
SPIDER_MODULES = ["spider"]
TWISTED_DNS_RESOLVER = "resolver.LoopbackResolver"
SCHEDULER_PRIORITY_QUEUE = "scrapy.pqueues.DownloaderAwarePriorityQueue"
CONCURRENT_REQUESTS_PER_DOMAIN = 1
DOWNLOAD_DELAY = 0
COOKIES_ENABLED = False
TELNETCONSOLE_ENABLED = False
RETRY_ENABLED = False
LOG_LEVEL = "INFO"
