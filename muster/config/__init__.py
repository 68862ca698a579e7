"""The configuration, read by daemons only: an existing site's slurm.conf and its companions into frozen records."""
