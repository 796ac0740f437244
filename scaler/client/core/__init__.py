"""The client's decisions, without I/O: what it asked for and has not got, and which batches calls become."""
