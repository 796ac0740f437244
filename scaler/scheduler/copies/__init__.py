"""A second copy of the journal, at the other one of two schedulers: what is sent, and when it counts."""
