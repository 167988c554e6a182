// Package history brings a test every version of the objects that it is about.
package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// retryAfter is how long Follow waits before it asks an API server again that did not answer.
const retryAfter = 100 * time.Millisecond

// Version is one version of an object.
type Version[T client.Object] struct {
	Object T
	// Gone: the object was deleted, and this is the last that is known of it.
	Gone bool
	// Gap: versions between this one and the one before may be missing, since the API server was away.
	Gap bool
}

// Follow calls saw with every version of the objects of a list's kind, one after the other. It returns once saw has all that
// is there, and goes on until ctx ends, over restarts of the API server too. Then it closes done.
func Follow[T client.Object](
	ctx context.Context, k8s client.WithWatch, list client.ObjectList, saw func(Version[T]), options ...client.ListOption,
) (done <-chan struct{}, err error) {
	f := &follower[T]{k8s: k8s, list: list, options: options, saw: saw, known: map[types.UID]T{}}
	version, err := f.takeAll(ctx, false)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.run(ctx, version)
	}()
	return ended, nil
}

type follower[T client.Object] struct {
	k8s     client.WithWatch
	list    client.ObjectList
	options []client.ListOption
	saw     func(Version[T])
	// known has the last version of what is there.
	known map[types.UID]T
}

func (f *follower[T]) run(ctx context.Context, version string) {
	for ctx.Err() == nil {
		if version == "" {
			var err error
			if version, err = f.takeAll(ctx, true); err != nil {
				wait.Pause(ctx, retryAfter)
				continue
			}
		}
		version = f.watch(ctx, version)
	}
}

// takeAll takes what there is, and what is there no longer.
func (f *follower[T]) takeAll(ctx context.Context, gap bool) (version string, err error) {
	list, _ := f.list.DeepCopyObject().(client.ObjectList) // a copy of a list is one
	if err := f.k8s.List(ctx, list, f.options...); err != nil {
		return "", fmt.Errorf("listing %T: %w", list, err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return "", fmt.Errorf("reading %T: %w", list, err)
	}
	there := map[types.UID]bool{}
	for _, object := range objects {
		if o, ok := object.(T); ok {
			there[o.GetUID()] = true
			f.take(Version[T]{Object: o, Gap: gap})
		}
	}
	for uid, last := range f.known {
		if !there[uid] {
			f.take(Version[T]{Object: last, Gone: true, Gap: true})
		}
	}
	return list.GetResourceVersion(), nil
}

// take passes a version on, unless a new list brings again what is known.
func (f *follower[T]) take(v Version[T]) {
	uid := v.Object.GetUID()
	last, known := f.known[uid]
	if known && !v.Gone && last.GetResourceVersion() == v.Object.GetResourceVersion() {
		return
	}
	if v.Gone {
		delete(f.known, uid)
	} else {
		f.known[uid] = v.Object
	}
	f.saw(v)
}

// watch watches from a version on, and returns from where to go on, or "" where only a new list helps.
func (f *follower[T]) watch(ctx context.Context, version string) string {
	raw := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}}
	watcher, err := f.k8s.Watch(ctx, f.list, append(slices.Clip(f.options), raw)...)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return ""
	}
	if err != nil {
		wait.Pause(ctx, retryAfter)
		return version
	}
	defer watcher.Stop()
	defer context.AfterFunc(ctx, watcher.Stop)() // not every client's watch ends with its context
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(T)
		if !ok || event.Type == watch.Error {
			return ""
		}
		version = object.GetResourceVersion()
		if event.Type != watch.Bookmark {
			f.take(Version[T]{Object: object, Gone: event.Type == watch.Deleted})
		}
	}
	wait.Pause(ctx, retryAfter)
	return version
}
