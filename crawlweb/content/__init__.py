"""From bytes to facts: what a page says of itself, without a look at the network or the frontier.

`charset` finds the encoding as browsers do; `page` parses once and gives links, title, text and signals.
"""
