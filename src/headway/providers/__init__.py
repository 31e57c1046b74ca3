"""Kinds of machines. A provider creates, lists, starts, stops and deletes machines that answer SSH; what happens inside a
machine is the same code for all of them (`headway.cluster`)."""
