"""Examples: to be copied, or used as they are."""
