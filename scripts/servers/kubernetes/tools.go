//go:build tools

// Package tools names the programs that the script build makes, so that go.mod and go.sum pin them and everything that
// they are built from.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
