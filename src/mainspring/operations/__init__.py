"""What can be done with jobs, runs, workers, calendars and events: once, for SDK, API, client and commands.

A verb has its rules, texts and audit rows here. Below it are one method of the port and one of each store; above it
each face has one call: a row of the API's table, a method of the client, a command. The SDK uses the verb as it is.

- `context`: on whose behalf operations act, on which store, within which limits.
- `jobs/`, `runs`, `workers`, `calendars`, `events`, `audit`: the verbs, each with its rules, errors and audit rows.
- `operations`: all of them as one object, which has the shape of `mainspring.Client`.
- `records`: the public types that they return; `problems`: what is answered in their place; `paging` walks lists.
- `jobs/options`: the one table of options; `jobs/definitions`, `jobs/backfill`: stored jobs and their past instants.
- `submission`: from options to new runs.
- `values/`: rows as public types, types in JSON bodies, arguments and results.
- `planning/`: what is to come: fire times, load, and what a change of a job, a calendar or a schedule would do.
- `views/`: answers that combine many rows: overview, ledger, tallies, why nothing happens.
"""
