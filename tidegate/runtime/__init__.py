"""Putting the parts together, and keeping the processes that run them."""
