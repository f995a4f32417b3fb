"""The stream of one request: placeholder until the table lands."""
