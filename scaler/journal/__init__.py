"""A journal: what has to outlive a process, in files that are only appended to. Knows nothing of what it holds."""
