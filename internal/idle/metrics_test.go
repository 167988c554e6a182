package idle

import (
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const spring = `# HELP http_server_requests_active_seconds
# TYPE http_server_requests_active_seconds summary
http_server_requests_active_seconds_count{method="GET",outcome="SUCCESS",uri="UNKNOWN",} 1
http_server_requests_active_seconds_count{method="POST",outcome="SUCCESS",uri="UNKNOWN",} 2
http_server_requests_active_seconds_sum{method="GET",outcome="SUCCESS",uri="UNKNOWN",} 0.003
# HELP http_server_requests_active_seconds_max
# TYPE http_server_requests_active_seconds_max gauge
http_server_requests_active_seconds_max{method="GET"} 7
`

func TestSumOf(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, body string
		until        drain.Until
		want         float64
		err          string
	}
	of := func(metric string) drain.Until { return drain.Until{Metric: metric} }
	labelled := func(metric, name, value string) drain.Until {
		return drain.Until{Metric: metric, Labels: map[string]string{name: value}}
	}
	expect.Each(t, map[string]row{
		"a gauge":     {"", "# TYPE in_flight gauge\nin_flight 3\n", of("in_flight"), 3, ""},
		"no line end": {"a server may leave it out", "in_flight 3", of("in_flight"), 3, ""},
		"Windows":     {"some servers end lines with both", "in_flight 3\r\nother 1\r\n", of("in_flight"), 3, ""},
		"several":     {"all series count", "in_flight{a=\"1\"} 1\nin_flight{a=\"2\"} 2 1395066363000\n", of("in_flight"), 3, ""},
		"labels":      {"only these count", "in_flight{a=\"1\"} 1\nin_flight{a=\"2\"} 2\n", labelled("in_flight", "a", "2"), 2, ""},
		"without a label": {
			"an empty value is of a series that lacks the label, as in Prometheus", "in_flight{a=\"1\"} 1\nin_flight 2\n", labelled("in_flight", "a", ""), 2, "",
		},
		"a longer name":     {"is another metric", "in_flight_max 9\nin_flight 1\n", of("in_flight"), 1, ""},
		"a summary's count": {"Spring has its gauge there, and no family of that name", spring, of("http_server_requests_active_seconds_count"), 3, ""},
		"a summary's count, by label": {
			"the scrape is a GET itself", spring, labelled("http_server_requests_active_seconds_count", "method", "POST"), 2, "",
		},
		"negative": {
			"it cancels busy ones (opentelemetry-java-instrumentation#11625)", "in_flight{a=\"1\"} -2\nin_flight{a=\"2\"} 2\n", of("in_flight"), 0, "-2",
		},
		"NaN":           {"not a number of requests", "in_flight NaN\n", of("in_flight"), 0, "NaN"},
		"infinite":      {"the same", "in_flight +Inf\n", of("in_flight"), 0, "+Inf"},
		"missing":       {"a metric that is not there shows nothing (istio#50596)", "other 0\n", of("in_flight"), 0, "no series of in_flight"},
		"no such label": {"the same", "in_flight{a=\"1\"} 0\n", labelled("in_flight", "a", "2"), 0, "no series of in_flight"},
		"only its type": {"the same", "# TYPE in_flight gauge\n", of("in_flight"), 0, "no series of in_flight"},
		"empty":         {"the same", "", of("in_flight"), 0, "no series"},
		"nonsense":      {"", "in_flight zero\n", of("in_flight"), 0, "parsing the metrics"},
		"HTML":          {"a port that serves something else", "<html>in_flight</html>", of("in_flight"), 0, "no series"},
		"other lines":   {"what is wrong with other metrics does not matter", "}{ %%\nin_flight 1\n", of("in_flight"), 1, ""},
		"a long line":   {"a tenant's answer has a bound", "x" + strings.Repeat("y", maxLine) + "\nin_flight 0\n", of("in_flight"), 0, "a line has more than"},
		"many series":   {"the same", strings.Repeat("in_flight 0\n", maxSeries/10), of("in_flight"), 0, "bytes of series"},
		"a large body":  {"the same", strings.Repeat(strings.Repeat("x", 1023)+"\n", maxMetrics>>10) + "in_flight 0\n", of("in_flight"), 0, "more than 8388608 bytes"},
	}, func(t *testing.T, tc row) {
		got, err := sumOf(strings.NewReader(tc.body), tc.until)
		expect.Error(t, tc.reason, err, tc.err)
		if tc.err == "" && got != tc.want {
			t.Errorf("%s: the sum is %g, want %g", tc.reason, got, tc.want)
		}
	})
}

func TestByCount(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		sum    float64
		allow  int64
		idle   bool
		left   int64
	}{
		{"none is left", 0, 0, true, 0},
		{"the scrape counts itself", 1, 1, true, 0},
		{"fewer than allowed", 1, 3, true, 0},
		{"the scrape and two more", 3, 1, false, 2},
		{"a part of a request is one", 0.25, 0, false, 1},
		{"more than anybody reads", 1e300, 0, false, 1<<31 - 1},
	} {
		if got := byCount(tc.sum, tc.allow); got.Idle != tc.idle || got.Left != tc.left {
			t.Errorf("%s: got %+v", tc.reason, got)
		}
	}
}

func FuzzSumOf(f *testing.F) {
	for _, body := range []string{spring, "in_flight 1", "in_flight{a=\"b\"} 1 2", "in_flight{", "in_flight -1"} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if sum, err := sumOf(strings.NewReader(body), drain.Until{Metric: "in_flight"}); err == nil && !(sum >= 0) {
			t.Errorf("the sum of %q is %g", body, sum)
		}
	})
}
