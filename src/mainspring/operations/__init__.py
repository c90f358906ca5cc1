"""What can be done with jobs, runs, workers, calendars and events: once, for SDK, API, client and commands.

- `context`: on whose behalf operations act, on which store, within which limits.
- `jobs`, `runs`, `workers`, `calendars`, `events`, `audit`: the verbs, each with its rules, errors and audit rows.
- `operations`: all of them as one object, which has the shape of `mainspring.Client`.
- `records`: the public types that they return; `from_rows` makes them from the store's rows; `paging` walks lists.
- `options`: the one table of options; `json_types`: their types in JSON bodies; `payload`: arguments and results.
- `definitions`, `bodies`: from options to stored jobs, and from stored jobs to request bodies.
- `submission`, `announced_tasks`: from options to new runs.
- `backfill`, `explain`, `forecast`: past instants without runs, why nothing happens, and when a job fires next.
"""
