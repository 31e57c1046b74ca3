"""Decides what a symptom means and which repair follows. Pure: `health.incidents` carries the decision out."""
