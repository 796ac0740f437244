"""The client's connection: who makes it, who watches it, and what goes over it."""
