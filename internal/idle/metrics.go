package idle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rollcall-dev/rollcall/internal/drain"
)

const (
	// maxMetrics bounds what is read of a pod's metrics, of which few lines are kept.
	maxMetrics = 8 << 20
	// maxSeries bounds these lines, and maxLine each line.
	maxSeries = 256 << 10
	maxLine   = 64 << 10
)

// sumOf returns the sum of the metric's series that have the labels. No such series is an error: what does not count itself is not idle.
func sumOf(body io.Reader, until drain.Until) (sum float64, err error) {
	lines, err := samples(body, until.Metric)
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(lines))
	if err != nil {
		return 0, fmt.Errorf("parsing the metrics: %w", err)
	}
	found := false
	for _, m := range families[until.Metric].GetMetric() {
		if !matches(m, until.Labels) {
			continue
		}
		value := m.GetUntyped().GetValue()
		if math.IsNaN(value) || math.IsInf(value, 0) || value < 0 {
			return 0, fmt.Errorf("a series of %s has the value %g: choose a metric that counts requests under way", until.Metric, value)
		}
		sum, found = sum+value, true
	}
	if !found {
		return 0, fmt.Errorf("no series of %s has the labels in until: check until.metric and until.labels", until.Metric)
	}
	return sum, nil
}

// samples returns the lines with samples of this very name. Without the lines that tell their type, the parser takes each name for a metric
// of its own: also the count of a summary, which is how Spring has its gauge.
func samples(body io.Reader, name string) ([]byte, error) {
	limited := &io.LimitedReader{R: body, N: maxMetrics + 1}
	scanner := bufio.NewScanner(limited)
	scanner.Buffer(nil, maxLine)
	var lines []byte
	for scanner.Scan() {
		line := bytes.TrimLeft(scanner.Bytes(), " \t")
		rest, found := bytes.CutPrefix(line, []byte(name))
		if !found || len(rest) == 0 || !strings.ContainsRune("{ \t", rune(rest[0])) {
			continue
		}
		if lines = append(append(lines, line...), '\n'); len(lines) > maxSeries {
			return nil, fmt.Errorf("%s has more than %d bytes of series", name, maxSeries)
		}
	}
	switch {
	case limited.N == 0:
		return nil, fmt.Errorf("the metrics have more than %d bytes", maxMetrics)
	case errors.Is(scanner.Err(), bufio.ErrTooLong):
		return nil, fmt.Errorf("a line has more than %d bytes", maxLine)
	case scanner.Err() != nil:
		return nil, fmt.Errorf("reading the metrics: %w", scanner.Err())
	}
	return lines, nil
}

func matches(m *dto.Metric, labels map[string]string) bool {
	for name, value := range labels {
		if labelOf(m, name) != value {
			return false
		}
	}
	return true
}

// labelOf is empty without the label, as in Prometheus.
func labelOf(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

func byCount(sum float64, allow int64) drain.Answer {
	left := math.Ceil(sum) - float64(allow)
	if left <= 0 {
		return drain.Answer{Idle: true}
	}
	return drain.Answer{Left: int64(min(left, math.MaxInt32))}
}
