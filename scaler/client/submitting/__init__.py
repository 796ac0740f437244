"""Submitting: calls, maps, graphs and objects become what the session sends."""
