"""The agent's decisions, pure: events in, effects out."""
