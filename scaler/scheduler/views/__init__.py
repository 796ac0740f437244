"""What can be seen of the scheduler's state: a snapshot of all of it, and the story of one row."""
