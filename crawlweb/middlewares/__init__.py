"""Downloader middlewares, thin: what a response or a failure means is policy, what follows is the frontier's."""
