"""Token counting, bounded in time."""
