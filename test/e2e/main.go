// Command e2e plays rollouts on real nodes while clients send requests, and counts those that are lost with Rollcall,
// with what a careful team does without it, and with a mirror of readiness alone. docs/e2e.md describes it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/command"
)

const (
	envKubeconfig = "E2E_KUBECONFIG"
	// ownCluster as its value plays on a cluster of this machine as if it were another's.
	ownCluster = "own"
	// envServices, if it is set, has clients find the pods by a Kubernetes Service for each arm and not in Consul.
	envServices = "E2E_SERVICES"
)

// Arguments of the processes that this program starts: in namespaces of its own, and in a pod.
const (
	insideArg = "inside"
	inPodArg  = "in-pod"
)

func main() { os.Exit(command.Run("e2e", start)) }

func start(ctx context.Context) error {
	services := os.Getenv(envServices) != ""
	chosen, err := choose(os.Getenv("E2E"), services)
	if err != nil {
		return err
	}
	switch kubeconfig := os.Getenv(envKubeconfig); {
	case len(os.Args) > 1 && os.Args[1] == insideArg:
		return inside(ctx, chosen)
	case len(os.Args) > 1 && os.Args[1] == inPodArg:
		return inPod(ctx, chosen)
	case kubeconfig != "" && services:
		return errors.New(envServices + " needs the nodes of this machine: leave " + envKubeconfig + " out")
	case kubeconfig != "" && kubeconfig != ownCluster:
		if err := writeImages(ctx, ""); err != nil {
			return err
		}
		fmt.Printf("e2e: the nodes must have the images of %s, by kind load image-archive for example\n", imagesPath)
		return remote(ctx, kubeconfig)
	}
	if err := prepare(ctx, chosen); err != nil {
		return err
	}
	return isolated(ctx, insideArg)
}

// choose returns the scenarios that the variable E2E asks for: all, those that CI plays, or those with the text in
// their name. Behind Services only some are played.
func choose(value string, services bool) ([]scenario, error) {
	chosen := slices.DeleteFunc(scenarios(), func(s scenario) bool {
		return services && !s.services || s.apart && value == "" || (value != "short" || !s.short) && !strings.Contains(s.name, value)
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("E2E is %q: write short for the scenarios that CI plays, a part of a scenario's name "+
			"such as %q, or leave it out for all", value, scenarios()[0].name)
	}
	return chosen, nil
}
