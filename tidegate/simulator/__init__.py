"""Simulated engines, and the same decisions under a virtual clock."""
