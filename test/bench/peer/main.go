// Command peer does the registry's half of Rollcall's work with KusionStack's resourceconsist: a manager of its frame, with
// an adapter to the bench's registry. Services are the employers, and pods the employees.
//
//	peer NAME KUBECONFIG REGISTRY
//
// It is a module of its own, which only make bench builds, for two reasons: resourceconsist wants the client-go of 2022, and
// its modules are not to be had everywhere. So the checks of this repository leave it out.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"kusionstack.io/resourceconsist/pkg/frame/controller"
	"kusionstack.io/resourceconsist/pkg/utils"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/ratelimiter"
)

const (
	podPort = 8080
	atOnce  = 32  // calls for a Service, to begin with
	asMany  = 128 // as Rollcall has workers
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(who, kubeconfig, registry string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// The controller-runtime that it wants keeps to 20 requests a second where one says nothing, and today's does not.
	config.UserAgent, config.QPS = who, -1
	manager, err := ctrl.NewManager(config, ctrl.Options{MetricsBindAddress: "0"})
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, atOnce*asMany
	a := &adapter{Client: manager.GetClient(), registry: registry, http: http.Client{Transport: transport}}
	var adapts controller.ReconcileAdapter = a
	if strings.HasSuffix(who, "-wide") {
		adapts = wide{a}
	}
	if err := controller.AddToMgr(manager, adapts); err != nil {
		return err
	}
	ctx := ctrl.SetupSignalHandler()
	go func() {
		if manager.GetCache().WaitForCacheSync(ctx) {
			fmt.Println("ready")
		}
	}()
	return manager.Start(ctx)
}

type (
	employers = []controller.IEmployer
	employees = []controller.IEmployee
)

// adapter puts the ready pods of a Service in service, and the others out of it.
type adapter struct {
	client.Client
	noEmployers
	registry string
	http     http.Client
}

func (*adapter) GetControllerName() string                   { return "bench" }
func (*adapter) FollowPodOpsLifeCycle() bool                 { return true }
func (*adapter) NeedRecordLifecycleFinalizerCondition() bool { return false }

// wide has as many workers as Rollcall; the frame has 5.
type wide struct{ *adapter }

func (wide) GetMaxConcurrent() int                   { return asMany }
func (wide) GetRateLimiter() ratelimiter.RateLimiter { return workqueue.DefaultControllerRateLimiter() }

// noEmployers says that a Service itself needs nothing in the registry.
type noEmployers struct{}

func (noEmployers) GetExpectedEmployer(context.Context, client.Object) (_ employers, _ error) { return }
func (noEmployers) GetCurrentEmployer(context.Context, client.Object) (_ employers, _ error)  { return }
func (noEmployers) CreateEmployer(context.Context, client.Object, employers) (_, _ employers, _ error) {
	return
}
func (noEmployers) UpdateEmployer(context.Context, client.Object, employers) (_, _ employers, _ error) {
	return
}
func (noEmployers) DeleteEmployer(context.Context, client.Object, employers) (_, _ employers, _ error) {
	return
}

// entry is as the registry has it. Each Service is a cluster of its own there, so a list has the entries of one Service.
type entry struct {
	Service   string `json:"service"`
	Address   string `json:"address"`
	Port      int    `json:"port"`
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	State     string `json:"state,omitempty"`
}

// employee is a pod as it is to be, or as the registry has it: the extra status is whether it is in service.
type employee struct {
	entry
	status controller.PodEmployeeStatuses
}

func (e *employee) GetEmployeeId() string     { return e.UID }
func (e *employee) GetEmployeeName() string   { return e.Pod }
func (e *employee) GetEmployeeStatuses() any  { return e.status }
func (e *employee) SetEmployeeStatuses(s any) { e.status = s.(controller.PodEmployeeStatuses) }
func (e *employee) EmployeeEqual(other controller.IEmployee) (bool, error) {
	return e.status.ExtraStatus == other.(*employee).status.ExtraStatus, nil
}

func (a *adapter) GetSelectedEmployeeNames(ctx context.Context, service client.Object) (names []string, err error) {
	pods, err := a.GetExpectedEmployee(ctx, service)
	for _, pod := range pods {
		names = append(names, pod.GetEmployeeName())
	}
	return names, err
}

func (a *adapter) GetExpectedEmployee(ctx context.Context, service client.Object) (all employees, err error) {
	var pods corev1.PodList
	err = a.List(ctx, &pods, client.InNamespace(service.GetNamespace()), client.MatchingLabels(service.(*corev1.Service).Spec.Selector))
	for i := range pods.Items {
		pod := &pods.Items[i]
		status, _ := controller.GetCommonPodEmployeeStatus(pod) // fails for nil only
		status.ExtraStatus = status.LifecycleReady
		all = append(all, &employee{status: status, entry: entry{
			Service: service.GetName(), Address: pod.Status.PodIP, Port: podPort,
			Cluster: service.GetName(), Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
		}})
	}
	return all, err
}

func (a *adapter) GetCurrentEmployee(ctx context.Context, service client.Object) (all employees, err error) {
	var list struct {
		Instances []entry `json:"instances"`
	}
	err = a.call(ctx, http.MethodGet, "/v1/instances?cluster="+service.GetName(), nil, &list)
	for _, e := range list.Instances {
		all = append(all, &employee{entry: e, status: controller.PodEmployeeStatuses{ExtraStatus: e.State == "InService"}})
	}
	return all, err
}

// CreateEmployees registers the pods that are ready. For the others there is nothing to create, and they come again.
func (a *adapter) CreateEmployees(ctx context.Context, _ client.Object, pods employees) (done, failed employees, err error) {
	return a.change(ctx, slices.DeleteFunc(pods, func(pod controller.IEmployee) bool {
		return !pod.(*employee).status.LifecycleReady
	}), "")
}

func (a *adapter) UpdateEmployees(ctx context.Context, _ client.Object, pods employees) (done, failed employees, err error) {
	return a.change(ctx, pods, "")
}

func (a *adapter) DeleteEmployees(ctx context.Context, _ client.Object, pods employees) (done, failed employees, err error) {
	return a.change(ctx, pods, "deregister")
}

// change makes one call for each pod, with the frame's own means to make many at once. An empty call is as the pod is.
func (a *adapter) change(ctx context.Context, pods employees, call string) (done, failed employees, err error) {
	var mu sync.Mutex
	_, _ = utils.SlowStartBatch(len(pods), atOnce, false, func(i int, _ error) error {
		e, path := pods[i].(*employee), call
		switch {
		case path != "":
		case e.status.LifecycleReady:
			path = "register"
		default:
			path = "fail-over"
		}
		err := a.call(ctx, http.MethodPost, "/v1/"+path, e.entry, nil)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = append(failed, e)
		} else {
			done = append(done, e)
		}
		return nil // failed says so, and the others go on
	})
	return done, failed, nil
}

func (a *adapter) call(ctx context.Context, method, path string, body, into any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, a.registry+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	answer, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the registry answers %s", answer.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}
