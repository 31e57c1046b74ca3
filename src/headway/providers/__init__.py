"""Providers of machines. A provider creates, lists, starts, stops and deletes machines that answer SSH; work inside a
machine is the same code for all providers (`headway.cluster`)."""
