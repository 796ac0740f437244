"""Large results of durable jobs: files in a directory that scheduler, agents and clients share."""
