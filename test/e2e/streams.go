package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// Most streams are short. Each of the pods has five at any time.
	meanStream, longestStream = 15 * time.Second, 2 * time.Minute
	streamEvery               = meanStream / (5 * replicas)
	// steady is how long it takes until as many streams end as begin.
	steady = 4 * meanStream
	// streamTimeout is longer than any stream takes on a busy machine.
	streamTimeout = longestStream + time.Minute
)

// drained is what came of the streams of an arm while its pods were updated.
type drained struct {
	name, drain string
	streams     rollout.Tally
	rollout     time.Duration
}

// streams updates the pods of three arms whose clients follow server-sent events. The arms differ in how long their pods drain.
func streams(ctx context.Context, w *world) error {
	arms := []drained{
		{name: "short", drain: "15s"},
		{name: "long", drain: "130s"},
		{name: "idle", drain: "{min: 5s, max: 130s, until: {path: /idle, port: 8080}}"},
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range arms {
		group.Go(func() error { return w.stream(groupCtx, &arms[i]) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	const format = "%-56v %8v %8v %16v\n"
	fmt.Fprintf(w.out, "\n"+format, "drain", "streams", "cut", "rollout, seconds")
	for _, a := range arms {
		fmt.Fprintf(w.out, format, a.drain, a.streams.Requests, a.streams.Failed, int(a.rollout.Seconds()))
	}
	if err := judge(arms[0], arms[1], arms[2]); err != nil {
		fmt.Fprintf(w.out, "e2e: streams: %v\n", err)
		return command.ErrFailed
	}
	return nil
}

// judge returns what is not as docs/traffic.md has it.
func judge(short, long, idle drained) error {
	switch {
	case short.streams.Failed == 0:
		return errors.New("a short drain cut none, so it shows nothing that the others cut none")
	case long.streams.Failed > 0:
		return errors.New("a drain that is longer than each stream cut some")
	case idle.streams.Failed > 0:
		return errors.New("a drain until the pod is idle cut some")
	case idle.rollout > long.rollout*3/4: // 46 % when it was measured; lengths are random
		return errors.New("a drain until the pod is idle took more than three quarters of the time of a fixed one that cuts none")
	}
	return nil
}

// stream updates the pods of one arm, two at a time. Their drain is all that streams get: there is no preStop sleep.
func (w *world) stream(ctx context.Context, d *drained) (err error) {
	a, err := w.stage(ctx, d.name, rollout.ClientOptions{Every: streamEvery, Timeout: streamTimeout, Send: follower()},
		func(set *appsv1alpha1.CloneSet) {
			template := &set.Spec.Template
			template.Annotations = map[string]string{service.AnnotationDrain: d.drain}
			template.Spec.Containers[0].Lifecycle = nil
		})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.strike(ctx)) }()
	wait.Pause(ctx, steady)
	started := time.Now()
	if err := sequence(update, updated(2), updated(4), updated(replicas), settled)(ctx, a.arm); err != nil {
		return err
	}
	d.rollout = time.Since(started)
	a.stop() // once all streams have ended
	d.streams = a.client.Tally()
	w.tellLost(a)
	return nil
}

// follower returns what follows one stream of events, and fails if it is cut.
func follower() func(context.Context, registry.Entry) error {
	client := &http.Client{Timeout: streamTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context, target registry.Entry) error {
		length := min(time.Duration(rand.ExpFloat64()*float64(meanStream)), longestStream)
		address := fmt.Sprintf("http://%s/events?for=%s", target.Endpoint(), length)
		events, err := (&registries.Client{URL: address, HTTP: client}).Do(ctx, http.MethodGet, "", nil)
		switch {
		case err != nil:
			return err
		case !bytes.HasPrefix(events, []byte("data: "+target.Pod+"\n")):
			return errors.New("another pod answered")
		case !bytes.HasSuffix(events, []byte("event: end\ndata: \n\n")):
			return errors.New("the stream was cut")
		}
		return nil
	}
}
