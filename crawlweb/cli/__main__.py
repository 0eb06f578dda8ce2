"""`python -m crawlweb.cli`."""

from . import main

main()
