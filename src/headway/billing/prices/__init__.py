"""Prices: which one holds from when, and offers of clouds compared. Pure.

Not here: the shipped prices of clouds (`catalog.offers`)."""
