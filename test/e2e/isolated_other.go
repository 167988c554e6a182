//go:build !linux

package main

import (
	"context"
	"errors"
)

var errNotLinux = errors.New("nodes with containers need Linux")

func isolated(context.Context, ...string) error { return errNotLinux }

func furnish(context.Context) error { return errNotLinux }
