"""Reasons to leave an endpoint out: one file each."""
