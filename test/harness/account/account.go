// Package account gives a cluster the ServiceAccount and the roles that ship, for managers that run outside of it.
package account

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
)

const (
	// Namespace is where the manifests that ship put the manager.
	Namespace = "rollcall-system"
	// Lease is the one that the role which ships allows.
	Lease = "rollcall"

	rbacPath = "config/rbac"
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
	objects, err := shipped(ctx, "")
	if err != nil {
		return nil, err
	}
	its := &corev1.ServiceAccount{}
	for _, object := range objects {
		for _, edit := range edits {
			edit(object)
		}
		if err := create(ctx, k8s, object); err != nil {
			return nil, err
		}
		if a, ok := object.(*corev1.ServiceAccount); ok {
			its = a
		}
	}
	return tokenOf(ctx, k8s, admin, its)
}

// AllowLease gives the ServiceAccount that ships the right to the lease in one more namespace, by the role that ships.
func AllowLease(ctx context.Context, admin *rest.Config, namespace string) error {
	k8s, err := client.New(admin, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	objects, err := shipped(ctx, "leader_election_*.yaml")
	if err != nil {
		return err
	}
	for _, object := range objects {
		object.SetNamespace(namespace)
		if err := create(ctx, k8s, object); err != nil {
			return err
		}
	}
	return nil
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

// shipped reads those manifests in config/rbac whose file matches the pattern, or all. As kustomize does, it puts what
// has a namespace into the one that config/default names.
func shipped(ctx context.Context, pattern string) ([]client.Object, error) {
	dir, err := cache.Dir(ctx, rbacPath)
	if err != nil {
		return nil, fmt.Errorf("finding the manifests: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", rbacPath, err)
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		return nil, fmt.Errorf("reading the kustomization in %s: %w", rbacPath, err)
	}
	var objects []client.Object
	for _, file := range kustomization.Resources {
		if matches, err := filepath.Match(pattern, file); pattern != "" && (err != nil || !matches) {
			continue
		}
		object, err := read(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

func read(path string) (client.Object, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	decoded, _, err := clientgoscheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	object, ok := decoded.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s holds a %T, which is no object of Kubernetes", path, decoded)
	}
	switch object.(type) {
	case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
	default:
		object.SetNamespace(Namespace)
	}
	return object, nil
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
