package clusterstate

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// CacheThrough gives what the manager's cache would keep of what the client reads, for tests of what reads the cache: a rule that reads a
// field that is not kept fails there. It reads pods whole: [PodsThrough] is for those.
func CacheThrough(c client.WithWatch) client.WithWatch {
	transforms := map[reflect.Type]toolscache.TransformFunc{}
	for object, transform := range Transforms(time.Now) {
		transforms[reflect.TypeOf(object)] = transform
	}
	return cacheThrough{c, transforms}
}

type cacheThrough struct {
	client.WithWatch

	transforms map[reflect.Type]toolscache.TransformFunc
}

func (c cacheThrough) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if err := c.WithWatch.Get(ctx, key, object, opts...); err != nil {
		return err
	}
	return c.keep(object)
}

func (c cacheThrough) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.WithWatch.List(ctx, list, opts...); err != nil {
		return err
	}
	return meta.EachListItem(list, c.keep)
}

// keep replaces the object by what is kept of it.
func (c cacheThrough) keep(object runtime.Object) error {
	transform := c.transforms[reflect.TypeOf(object)]
	if transform == nil {
		return nil
	}
	kept, err := transform(object)
	if err != nil {
		return fmt.Errorf("keeping what is read of %T: %w", object, err)
	}
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(kept).Elem())
	return nil
}

// PodsOf are these pods, as a cache would give them.
func PodsOf(pods []corev1.Pod) Pods {
	f := fixed{}
	sharer := NewSharer()
	for i := range pods {
		f = append(f, sharer.strip(&pods[i]))
	}
	return f
}

type fixed []*packed

func (f fixed) Get(_ context.Context, key types.NamespacedName) (*lifecycle.Pod, error) {
	for _, p := range f {
		if p.Namespace == key.Namespace && p.Name == key.Name {
			return p.unpack(), nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
}

func (f fixed) List(_ context.Context, which Which) (pods []*lifecycle.Pod, err error) {
	f.each(which, func(p *packed) bool {
		pods = append(pods, p.unpack())
		return true
	})
	return pods, nil
}

func (f fixed) Each(_ context.Context, which Which, do func(*lifecycle.Pod) bool) error {
	var pod lifecycle.Pod
	f.each(which, func(p *packed) bool {
		p.unpackInto(&pod)
		return do(&pod)
	})
	return nil
}

func (f fixed) each(which Which, do func(*packed) bool) {
	for _, p := range f {
		at := which.index == "" || slices.Contains(p.indexed(which.index), which.value)
		if at && which.matches(p) && !do(p) {
			return
		}
	}
}

// PodsThrough reads pods as a cache of what the reader has would give them, for tests of what reads the cache.
func PodsThrough(reader client.Reader) Pods { return through{reader, NewSharer()} }

type through struct {
	reader client.Reader
	sharer *Sharer
}

func (t through) Get(ctx context.Context, key types.NamespacedName) (*lifecycle.Pod, error) {
	pod := &corev1.Pod{}
	if err := t.reader.Get(ctx, key, pod); err != nil {
		return nil, err
	}
	return t.sharer.strip(pod).unpack(), nil
}

func (t through) List(ctx context.Context, which Which) ([]*lifecycle.Pod, error) {
	pods, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	return pods.List(ctx, which)
}

func (t through) Each(ctx context.Context, which Which, do func(*lifecycle.Pod) bool) error {
	pods, err := t.read(ctx)
	if err != nil {
		return err
	}
	return pods.Each(ctx, which, do)
}

func (t through) read(ctx context.Context) (Pods, error) {
	var list corev1.PodList
	if err := t.reader.List(ctx, &list); err != nil {
		return nil, err
	}
	return PodsOf(list.Items), nil
}
