"""The longer texts of sacct."""

from __future__ import annotations

USAGE = """\
Usage: sacct [options]
\tUse --help for help
"""

HELP = """\
sacct [<OPTION>]
     -A, --accounts=accounts      only jobs of these accounts
         --array                  one line for each task of a pending array
     -a, --allusers               jobs of all users (default: your own; of root: all)
     -b, --brief                  JobID, State and ExitCode
     -D, --duplicates             every run of a job, not the newest only
         --delimiter=text         what stands between the fields of -p and -P (default '|')
     -e, --helpformat             print the names of all fields
     -E, --endtime=time           only jobs that were there before this time (default: now)
     -h, --help                   print this text
     -j, --jobs=job[.step],...    only these jobs, arrays, tasks (A_i) or steps
     -L, --allclusters            all clusters of this Muster (there is one)
     -l, --long                   a long line of fields
     -M, --clusters=names         only if this cluster is named
     -N, --nodelist=nodes         only jobs that ran on any of these nodes
     -n, --noheader               no header
         --name=names             only jobs of these names
         --noconvert              sizes as they are kept, in bytes or MiB
     -o, --format=fields          name[%[-]width], comma separated; ALL is every field
     -p, --parsable               fields followed by '|'
     -P, --parsable2              fields separated by '|'
     -q, --qos=names              only jobs of these QOS
     -r, --partition=names        only jobs of these partitions
     -S, --starttime=time         only jobs that were there after this time (default: 00:00 today; with -j: ever)
     -s, --state=states           only jobs that were in one of these states at some time of the window
     -T, --truncate               clip start and end to the window
     -U, --units=K|M|G|T|P        sizes in this unit
     -u, --user=users             only jobs of these users, by name or number
     -v, --verbose                say what is asked, and of which controller
     -V, --version                print the version
     -X, --allocations            no steps

     SACCT_FORMAT gives the fields where neither -o, -b nor -l does, SLURM_TIME_FORMAT the form of times.
"""
