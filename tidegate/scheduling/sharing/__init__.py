"""Limits that several replicas keep together: what is known where, and what each does while it cannot ask."""
