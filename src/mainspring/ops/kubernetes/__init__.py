"""Jobs as CronJobs of Kubernetes: `writing` and `reading` manifests, `cron_dialect` for schedules."""
