"""Durable jobs: what a program submits, and fetches whenever it likes, from wherever it is."""

from scaler.client.jobs.job import Job, JobState

__all__ = ["Job", "JobState"]
