package main

import (
	"context"
	"fmt"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const emptyWithin = 2 * time.Minute

// empty removes the workloads and the pods, and gives the lease back. No manager may run.
func (w *world) empty(ctx context.Context) error {
	for _, one := range workloads() {
		if err := w.k8s.DeleteAllOf(ctx, &kruisev1alpha1.CloneSet{}, client.InNamespace(one.namespace)); err != nil {
			return fmt.Errorf("deleting the CloneSets: %w", err)
		}
	}
	lease := account.LeaseGivenBack(account.Namespace)
	err := client.IgnoreNotFound(w.k8s.Delete(ctx, lease.DeepCopy()))
	if err == nil {
		err = w.k8s.Create(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("giving the lease back: %w", err)
	}
	return wait.Until(ctx, emptyWithin, calmPoll, func(ctx context.Context) error {
		pods, err := kube.Pods(ctx, w.k8s, "")
		if err != nil || len(pods) == 0 {
			return err
		}
		for i := range pods { // whatever holds them; tried again until there is none
			_ = w.k8s.Patch(ctx, &pods[i], kube.Merge(`{"metadata":{"finalizers":null}}`))
			_ = w.k8s.Delete(ctx, &pods[i], client.GracePeriodSeconds(0))
		}
		return fmt.Errorf("%d pods of the last plan are still there", len(pods))
	})
}
