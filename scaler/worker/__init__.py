"""The process that runs user code: a child of the agent's zygote, one row at a time."""
