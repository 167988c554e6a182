package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// slow is a registry that takes as long for each call as Nacos does until readers see it.
type slow struct{ registry.Registry }

const slowCall = 600 * time.Millisecond

func (s slow) Register(ctx context.Context, in registry.Instance) error {
	time.Sleep(slowCall)
	return s.Registry.Register(ctx, in)
}

func (s slow) FailOver(ctx context.Context, in registry.Instance) error {
	time.Sleep(slowCall)
	return s.Registry.FailOver(ctx, in)
}

// TestManyEntriesGoAtOnce has a pod with the names of a Dubbo provider of 19 interfaces: one after the other the calls would take 12 s.
func TestManyEntriesGoAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.apply(func(s *choices) {
			s.Registries = map[string]Registry{"default": {Calls: slow{w.registry}}}
		})
		names := []string{"shop=20880"}
		for i := range 19 {
			names = append(names, fmt.Sprintf("providers:org.example.Shop%d:1.0.0:=20880", i))
		}
		pod := w.bornPod(w.cloneSet("web"), "web-1", annotated(service.AnnotationServices, strings.Join(names, ",")))
		began := time.Now()
		w.reconcile(pod)
		if took := time.Since(began); took != slowCall {
			t.Errorf("%d entries went in within %s, want %s", len(names), took, slowCall)
		}
		w.expectHooks("all are in", pod, "preNormal inPlaceUpdate preDelete")
		if entries, err := w.registry.Truth(t.Context(), testCluster); err != nil || len(entries) != len(names) {
			t.Errorf("the registry has %d entries, want %d, and error %v", len(entries), len(names), err)
		}
	})
}
