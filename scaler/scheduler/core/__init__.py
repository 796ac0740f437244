"""The scheduler's decisions, pure: events in, effects out."""
