"""The longer text of sprio: --help."""

from __future__ import annotations

HELP = """\
Usage: sprio [OPTIONS]
  -h, --noheader                  no headers on output
  -j, --jobs                      comma separated list of jobs
                                  to view, default is all
      --local                     display jobs of the local cluster (the only one)
  -l, --long                      long report
  -M, --cluster=cluster_name      cluster to issue commands to
  -n, --norm                      display normalized values
  -o, --format=format             format specification
  -p, --partition=partition_name  comma separated list of partitions
  -S, --sort=fields               comma separated list of fields to sort on, by
                                  their letters; with - in front the largest first
  -u, --user=user_name            comma separated list of users to view
  -v, --verbose                   say what is asked of whom
  -V, --version                   display version information
  -w, --weights                   show the weights for each priority factor

Letters of a format, weighted and normalized: A a age, B b association,
F f fairshare, J j job size, P p partition, Q q QOS, T t TRES, Y y priority;
i job id, r partition, u user, o account, n QOS, N nice, S site, c cluster.

Help options:
  --help                          show this help message
  --usage                         display a brief summary of sprio options
"""
