"""What may be done to jobs: options, definitions, changes, announced tasks, backfills."""
