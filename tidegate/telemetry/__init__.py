"""What we export: metric families, the access-log intake and the admin pages."""
