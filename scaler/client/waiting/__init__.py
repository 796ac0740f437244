"""Waiting: how what was submitted ends, and what threads and tasks do until then."""
