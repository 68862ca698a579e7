"""What users see of jobs, nodes and partitions."""
