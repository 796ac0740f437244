"""All that an agent knows: tables and records, each with the moves it may make, and no decisions."""
