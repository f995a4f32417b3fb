"""How busy: the exposition parser, the dialects of the engines, and the scraper."""
