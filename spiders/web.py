from crawlweb.spider import WebSpider


class Web(WebSpider):
    """`scrapy crawl web`."""
