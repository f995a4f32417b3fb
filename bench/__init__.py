"""Measurements that compare two sides in one run, in the same minutes, on the same machine."""
