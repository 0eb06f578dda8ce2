"""Settings of the project: overrides only. What they mean: docs/settings.md."""
