// Package account gives a cluster the ServiceAccount and the roles that ship, for managers that run outside of it.
package account

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/manifests"
)

const (
	// Namespace is where the manifests that ship put the manager.
	Namespace = "rollcall-system"
	// Lease is the one that the role which ships allows.
	Lease = "rollcall"

	// tokenLife outlives every run: no kubelet renews the token.
	tokenLife = 24 * time.Hour
)

// Install gives a cluster the ServiceAccount and the roles that ship, in the namespace that ships, each changed by the
// edits. It returns a client configuration that acts as the ServiceAccount, by a token as a pod gets one. What is there
// already stays as it is.
func Install(ctx context.Context, admin *rest.Config, edits ...func(client.Object)) (*rest.Config, error) {
	k8s, err := client.New(admin, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	objects, err := shipped(ctx, "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
	if err != nil {
		return nil, err
	}
	its, lease := &corev1.ServiceAccount{}, LeaseGivenBack(Namespace)
	for _, object := range append(objects, lease) {
		for _, edit := range edits {
			edit(object)
		}
		lease.SetName(Lease)
		if err := create(ctx, k8s, object); err != nil {
			return nil, err
		}
		if a, ok := object.(*corev1.ServiceAccount); ok {
			its = a
		}
	}
	return tokenOf(ctx, k8s, admin, its)
}

// Restrict installs the component write-policy, which holds the ServiceAccount that ships to its own writes: to these keys, in addition to
// those of rollcall.dev/. Kubernetes before 1.30 has no such policies, and is left without.
func Restrict(ctx context.Context, admin *rest.Config, owned, newlyCreated []string) error {
	k8s, err := client.New(admin, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	objects, err := WritePolicy(ctx, owned, newlyCreated)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := create(ctx, k8s, object); err != nil && !meta.IsNoMatchError(err) {
			return err
		}
	}
	return nil
}

// WritePolicy returns the objects of the component write-policy, with these keys.
func WritePolicy(ctx context.Context, owned, newlyCreated []string) ([]*unstructured.Unstructured, error) {
	dir, err := cache.Dir(ctx, "config/components/write-policy")
	if err != nil {
		return nil, fmt.Errorf("finding the component: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, file := range []string{"parameters.yaml", "policy.yaml", "binding.yaml"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, fmt.Errorf("reading the component: %w", err)
		}
		some, err := manifests.Decode(string(text))
		if err != nil {
			return nil, err
		}
		objects = append(objects, some...)
	}
	objects[0].Object["data"] = map[string]any{"owned": strings.Join(owned, " "), "newlyCreated": strings.Join(newlyCreated, " ")}
	return objects, nil
}

// AllowLease gives the ServiceAccount that ships the right to the lease in one more namespace, by the role that ships.
func AllowLease(ctx context.Context, admin *rest.Config, namespace string) error {
	k8s, err := client.New(admin, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	objects, err := shipped(ctx, "Role", "RoleBinding")
	if err != nil {
		return err
	}
	for _, object := range append(objects, LeaseGivenBack(namespace)) {
		object.SetNamespace(namespace)
		if err := create(ctx, k8s, object); err != nil {
			return err
		}
	}
	return nil
}

// LeaseGivenBack is as a manager leaves it that ends: the next one does not wait, as the first one of an installation does.
func LeaseGivenBack(namespace string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Lease},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro())},
	}
}

// create creates an object and its namespace, unless they are there.
func create(ctx context.Context, k8s client.Client, object client.Object) error {
	if name := object.GetNamespace(); name != "" {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := client.IgnoreAlreadyExists(k8s.Create(ctx, namespace)); err != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	if err := client.IgnoreAlreadyExists(k8s.Create(ctx, object)); err != nil {
		return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
	}
	return nil
}

// shipped are the objects of these kinds in config/default.
func shipped(ctx context.Context, kinds ...string) ([]client.Object, error) {
	dir, err := cache.Dir(ctx, "config/default")
	if err != nil {
		return nil, fmt.Errorf("finding the manifests: %w", err)
	}
	rendered, err := manifests.Build(dir)
	if err != nil {
		return nil, err
	}
	var objects []client.Object
	for _, one := range rendered {
		object, err := clientgoscheme.Scheme.New(one.GroupVersionKind())
		if err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", one.GetKind(), one.GetName(), err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(one.Object, object); err != nil {
			return nil, fmt.Errorf("reading %s %s: %w", one.GetKind(), one.GetName(), err)
		}
		if typed, is := object.(client.Object); is && slices.Contains(kinds, one.GetKind()) {
			objects = append(objects, typed)
		}
	}
	return objects, nil
}

// tokenOf returns a configuration that acts as the ServiceAccount.
func tokenOf(
	ctx context.Context, k8s client.Client, admin *rest.Config, account *corev1.ServiceAccount,
) (*rest.Config, error) {
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenLife.Seconds()))},
	}
	if err := k8s.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("asking for a token of ServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = request.Status.Token
	return config, nil
}

// WriteKubeconfig writes a kubeconfig for a client that has a token, a certificate, or neither.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "rollcall"
	all := clientcmdapi.NewConfig()
	all.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	all.AuthInfos[name] = &clientcmdapi.AuthInfo{
		Token: config.BearerToken, ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
	}
	all.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	all.CurrentContext = name
	if err := clientcmd.WriteToFile(*all, path); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}
