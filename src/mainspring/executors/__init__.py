"""Adapters of the executor port.

`registry` finds the executor of a task. `function` and `batch` call Python functions, `pool` in processes that can be
killed; `command` and `http` are the provided tasks. `programs` runs and confines programs, by way of `launching`.
`secrets` resolves references in arguments, `captured_output` and `failures` record what happened.
"""
