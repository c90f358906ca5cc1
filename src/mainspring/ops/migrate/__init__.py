"""Jobs of other schedulers as jobs of Mainspring: `crontab`, `celery_beat`, `apscheduler_store`, `cronjobs`, `airflow`.

Each module reads one source into `Found`s (`found`), with the fire times by the source's own rules beside ours.
`their_cron` evaluates cron expressions by the rules of other programs; `functions` maps their functions to tasks.
"""
