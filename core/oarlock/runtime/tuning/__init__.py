"""Schedules found by measuring: the database, what of it applies to a device, and the search that fills it."""
