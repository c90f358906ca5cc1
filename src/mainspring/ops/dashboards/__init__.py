"""Dashboards: `description` says what each shows, `grafana` makes Grafana's JSON of it (`deploy/grafana`)."""
