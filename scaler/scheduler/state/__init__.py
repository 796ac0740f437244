"""What the scheduler knows: a plain tree of tables without callables, and the few modules that may change them."""
