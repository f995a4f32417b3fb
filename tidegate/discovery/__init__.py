"""Who exists: one file per source."""
