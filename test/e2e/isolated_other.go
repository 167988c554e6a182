//go:build !linux

package main

import (
	"context"
	"errors"
)

var errLinux = errors.New("nodes need Linux")

func isolated(context.Context, ...string) error { return errLinux }

func furnish(context.Context) error { return errLinux }
