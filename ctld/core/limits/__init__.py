"""Limits of associations, QOS and partitions: which hold for a job, what is in use, and what stands in a job's way."""
