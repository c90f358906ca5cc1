//go:build tools

// Package tools names the program that scripts/servers/kubernetes.sh builds, so that go.mod and go.sum pin it and
// everything that it is built from.
package tools

import _ "k8s.io/kubernetes/cmd/kube-apiserver"
