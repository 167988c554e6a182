// Command readers measures how late clients of real registries notice that a pod has left the rotation, and that it is back, after the
// registry has acknowledged it:
//
//	make readers                        # all
//	make readers READERS='nginx gRPC'   # those whose name has one of these words
//
// Each reader is what users run, with its defaults unless its row says otherwise. Then the pods are updated in place while clients send
// requests, with the drain and readerLag that docs/readers.md advises, and with half of them. What is later, or loses a request with the
// advice, fails.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/command"
)

func main() { os.Exit(command.Run("readers", play)) }

func play(ctx context.Context) error {
	words := strings.Fields(os.Getenv("READERS"))
	chosen := slices.DeleteFunc(all(), func(r reader) bool {
		return len(words) > 0 && !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(r.name, word) })
	})
	if len(chosen) == 0 {
		return fmt.Errorf("no reader has one of the words of READERS=%q in its name", words)
	}
	fmt.Println("| reader | registry | out: p50, p99 | back: p50, p99 | set | lost of requests, with that | with less |")
	fmt.Println("|---|---|---|---|---|---|---|")
	failed := false
	for _, r := range chosen {
		m, err := r.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Printf("| %s | %s | %s, %s | %s, %s | %s | %d of %d | %d of %d |\n", r.name, m.registry, at(m.out, 50), at(m.out, 99), at(m.back, 50),
			at(m.back, 99), r.set, m.full.lost, m.full.sent, m.less.lost, m.less.sent)
		for _, fault := range r.faults(m) {
			failed = true
			fmt.Println(r.name + " " + fault)
		}
	}
	if failed {
		return command.ErrFailed
	}
	return nil
}

// faults are what docs/readers.md promises and the reader does not do.
func (r reader) faults(m measured) (all []string) {
	if worst := slices.Max(m.out); worst > r.set.drain {
		all = append(all, fmt.Sprintf("gave a pod for %s that was out: docs/readers.md says %s", worst.Round(time.Millisecond), r.set))
	}
	if worst := slices.Max(m.back); worst > r.set.readerLag {
		all = append(all, fmt.Sprintf("found a pod after %s: docs/readers.md says %s", worst.Round(time.Millisecond), r.set))
	}
	if m.full.lost > 0 {
		all = append(all, fmt.Sprintf("lost %d of %d requests in %d rollouts with %s", m.full.lost, m.full.sent, r.rollouts, r.set))
	}
	return all
}

// at is a percentile.
func at(all []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)-1)*percent/100].Round(time.Millisecond)
}
