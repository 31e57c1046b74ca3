"""Sections about which jobs run where and when: partitions, QOS, limits, reservations. Not here: teams, whose section has
limits among others."""
