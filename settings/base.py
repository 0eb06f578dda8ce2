"""Common to all deployments."""

BOT_NAME = "crawlweb"
SPIDER_MODULES = ["spiders"]
NEWSPIDER_MODULE = "spiders"
ADDONS = {"crawlweb.Addon": 0}
LOG_LEVEL = "INFO"
