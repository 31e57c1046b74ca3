"""Decides what a symptom means and which repair follows. Pure.

Not here: actions (`health.incidents`), NVIDIA's table of XID codes (`headway.catalog`)."""
