"""What it costs to execute, by kind of task and isolation."""
