"""The process of one host: owns its workers, its task queue and its object store."""
