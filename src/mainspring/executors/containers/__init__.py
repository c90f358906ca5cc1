"""Executes containers: `kubernetes` by a Job of Kubernetes, `engine` by podman or docker. `request` reads what a run
asks for, `jobs` writes and deletes Jobs, `pods` follows a pod to its end."""
