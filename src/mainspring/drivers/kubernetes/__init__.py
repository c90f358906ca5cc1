"""The API of Kubernetes over httpx: from inside a pod, or by a kubeconfig file."""
