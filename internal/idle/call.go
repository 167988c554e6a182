package idle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/internal/drain"
)

const (
	// timeout bounds a question and its whole answer.
	timeout = 2 * time.Second
	// maxHeader and maxCount bound what is read of an answer; for metrics, see maxMetrics.
	maxHeader = 64 << 10
	maxCount  = 32
	// accepts is the text format that expfmt parses. OpenMetrics is another.
	accepts = "text/plain;version=0.0.4;q=1,*/*;q=0.1"
)

// caller calls a pod's own IP and nothing else: without a proxy, a name that is looked up, or a redirect. Each call has a connection of
// its own, so none of ours is left that a server could count.
type caller struct{ client *http.Client }

func newCaller() caller {
	dialer := &net.Dialer{Timeout: timeout}
	return caller{&http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, DisableKeepAlives: true,
			DisableCompression:     true, // what is small may be large
			MaxResponseHeaderBytes: maxHeader,
		},
	}}
}

func failed(format string, args ...any) drain.Answer {
	return drain.Answer{Failed: fmt.Sprintf(format, args...)}
}

func (c caller) ask(ctx context.Context, q drain.Question) drain.Answer {
	if net.ParseIP(q.IP) == nil {
		return failed("the pod has no IP")
	}
	url := "http://" + net.JoinHostPort(q.IP, strconv.Itoa(q.Until.Port)) + q.Until.Path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return failed("%v", err)
	}
	request.Header.Set("User-Agent", "rollcall")
	if q.Until.Metric != "" {
		request.Header.Set("Accept", accepts)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return failed("%v", explained(err))
	}
	defer response.Body.Close()
	if q.Until.Metric == "" {
		return byStatus(url, response)
	}
	if response.StatusCode != http.StatusOK {
		return failed("%s answered %s: set until.path and until.port to where the pod has its metrics", url, response.Status)
	}
	sum, err := sumOf(response.Body, q.Until)
	if err != nil {
		return failed("%s: %v", url, err)
	}
	return byCount(sum, q.Until.Allow)
}

// explained is an error without what a reader of the message knows.
func explained(err error) error {
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return fmt.Errorf("%w; if NetworkPolicies isolate the pod, allow this port for Rollcall", err)
	}
	return err
}

// byStatus reads what an application's own endpoint answers. A busy one can tell how many requests are left.
func byStatus(url string, response *http.Response) drain.Answer {
	switch status := response.StatusCode; {
	case status >= 200 && status <= 299:
		return drain.Answer{Idle: true}
	case status != http.StatusServiceUnavailable:
		return failed("%s answered %s: have it answer 2xx if the pod is idle and 503 if it is busy", url, response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxCount))
	if err != nil {
		return drain.Answer{}
	}
	left, err := strconv.ParseUint(strings.TrimSpace(string(body)), 10, 31)
	if err != nil {
		return drain.Answer{}
	}
	return drain.Answer{Left: int64(left)}
}
