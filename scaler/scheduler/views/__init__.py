"""What can be seen of the scheduler's state: all of it at one moment, and the story of one row."""
