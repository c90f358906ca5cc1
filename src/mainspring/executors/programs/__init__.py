"""Runs programs: `program` starts and ends them by way of `launching`, `confinement` applies an isolation, `host` finds
out what the host can confine, `output` and `pipe_reader` read what they write."""
