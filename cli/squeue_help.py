"""The longer texts of squeue: --help, --helpformat, --helpFormat."""

from __future__ import annotations

from cli import squeue_columns

HELP = """\
Usage: squeue [OPTIONS]
  -A, --account=account(s)        comma separated list of accounts to view, default is all accounts
  -a, --all                       display jobs in hidden partitions too
  -r, --array                     display one job array element per line
      --expand-patterns           expand filename patterns of StdIn, StdOut and StdErr
  -o, --format=format             format specification
  -O, --Format=format             format specification by names
  -h, --noheader                  no headers on output
      --hide                      do not display jobs in hidden partitions
  -i, --iterate=seconds           specify an iteration period
  -j, --jobs[=job(s)]             comma separated list of jobs IDs to view, default is all
  -l, --long                      long report
  -M, --clusters=cluster_name     cluster to issue commands to
      --me                        equivalent to --user=<my username>
  -n, --name=job_name(s)          comma separated list of job names to view
      --noconvert                 don't convert units from their original type
      --only-job-state            print only the state of jobs
  -p, --partition=partition(s)    comma separated list of partitions to view, default is all partitions
  -q, --qos=qos(s)                comma separated list of qos's to view, default is all qos's
  -R, --reservation=name(s)       comma separated list of reservations to view, default is all jobs
  -S, --sort=fields               comma separated list of fields to sort on
      --start                     print expected start times of pending jobs
  -s, --steps[=step(s)]           comma separated list of job steps to view, default is all
  -t, --states=states             comma separated list of states to view, 'all' for every state
  -u, --user=user_name(s)         comma separated list of users to view
  -v, --verbose                   say what is asked, and of which controller
  -V, --version                   output version information and exit
  -w, --nodelist=hostlist         list of nodes to view, default is all nodes

Help options:
  --help                          show this help message
  --helpformat                    print the letters of --format
  --helpFormat                    print the names of --Format
  --helpstate                     print the words of --states
  --usage                         display a brief summary of squeue options
"""


def text_of(key: str) -> str:
    """Give the text of one of these options."""
    if key == "help":
        return HELP
    if key == "helpformat":
        return "".join(f"%{letter}\n" for letter in squeue_columns.JOB_LETTERS)
    return "\n".join(squeue_columns.JOB_NAMES) + "\n"
