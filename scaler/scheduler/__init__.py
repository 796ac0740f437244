"""The scheduler: one process that decides where rows run and never runs or unpickles any."""
