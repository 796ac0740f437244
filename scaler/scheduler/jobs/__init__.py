"""Durable jobs: what outlives its client, in a journal. To the scheduler's core each is a client that never leaves."""
