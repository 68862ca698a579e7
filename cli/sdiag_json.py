"""The payload of sdiag --json."""

from __future__ import annotations

from cli import base
from cli.json_output import number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def payload(answer: dict[str, Any], kinds: list[dict[str, Any]], users: list[dict[str, Any]]) -> dict[str, Any]:
    """Give the statistics under Slurm's names; counters of what Muster has not are 0."""
    jobs, main, deep = answer["jobs"], answer["main"], answer["deep"]
    return {
        "statistics": {
            "req_time": number(answer["now"]),
            "req_time_start": number(answer["since"]),
            "server_thread_count": answer["calls"],
            "agent_queue_size": answer["orders"],
            "agent_count": 0,
            "agent_thread_count": 0,
            "dbd_agent_queue_size": answer["events_behind"],
            "gettimeofday_latency": answer["clock_microseconds"],
            "job_states_ts": number(answer["now"]),
            "jobs_submitted": jobs["submitted"],
            "jobs_started": jobs["started"],
            "jobs_completed": jobs["completed"],
            "jobs_canceled": jobs["cancelled"],
            "jobs_failed": jobs["failed"],
            "jobs_pending": jobs["pending"],
            "jobs_running": jobs["running"],
            "schedule_cycle_max": main["longest"],
            "schedule_cycle_last": main["last"],
            "schedule_cycle_sum": main["total"],
            "schedule_cycle_total": main["count"],
            "schedule_cycle_mean": main["mean"],
            "schedule_cycle_mean_depth": main["mean_depth"],
            "schedule_cycle_per_minute": main["per_minute"],
            "schedule_cycle_depth": main["depth"],
            "schedule_exit": {
                "end_job_queue": main["whole"],
                "default_queue_depth": 0,
                "max_job_start": 0,
                "max_rpc_cnt": 0,
                "max_sched_time": main["out_of_time"],
                "licenses": 0,
            },
            "schedule_queue_length": main["last_queue"],
            "bf_backfilled_jobs": answer["backfilled"],
            "bf_last_backfilled_jobs": answer["backfilled_today"],
            "bf_backfilled_het_jobs": 0,
            "bf_cycle_counter": deep["count"],
            "bf_cycle_mean": deep["mean"],
            "bf_depth_mean": deep["mean_depth"],
            "bf_depth_mean_try": deep["mean_depth"],
            "bf_cycle_sum": deep["total"],
            "bf_cycle_last": deep["last"],
            "bf_cycle_max": deep["longest"],
            "bf_last_depth": deep["last_depth"],
            "bf_last_depth_try": deep["last_depth"],
            "bf_depth_sum": deep["depth"],
            "bf_depth_try_sum": deep["depth"],
            "bf_queue_len": deep["last_queue"],
            "bf_queue_len_mean": deep["mean_queue"],
            "bf_queue_len_sum": deep["queue"],
            "bf_table_size": deep["last_table"],
            "bf_table_size_sum": deep["table"],
            "bf_table_size_mean": deep["mean_table"],
            "bf_when_last_cycle": number(deep["last_at"]),
            "bf_active": answer["planning"],
            "bf_exit": {
                "end_job_queue": deep["whole"],
                "bf_max_job_start": 0,
                "bf_max_job_test": 0,
                "bf_max_time": deep["out_of_time"],
                "bf_node_space_size": 0,
                "state_changed": 0,
            },
            "rpcs_by_message_type": [
                {
                    "type_id": one["number"],
                    "message_type": one["name"],
                    "count": one["count"],
                    "queued": 0,
                    "dropped": 0,
                    "cycle_last": one["last"],
                    "cycle_max": one["longest"],
                    "total_time": one["total"],
                    "average_time": number(one["total"] // one["count"]),
                }
                for one in kinds
            ],
            "rpcs_by_user": [
                {
                    "user_id": one["uid"],
                    "user": base.user_name(one["uid"]),
                    "count": one["count"],
                    "total_time": one["total"],
                    "average_time": number(one["total"] // one["count"]),
                }
                for one in users
            ],
            "pending_rpcs": [],
            "pending_rpcs_by_hostlist": [],
        }
    }
