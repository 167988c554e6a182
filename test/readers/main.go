// Command readers measures how late clients of real registries notice that a pod has left the rotation, and that it is back, after the
// registry has acknowledged it:
//
//	make readers                        # all
//	make readers READERS='nginx gRPC'   # those whose name has one of these words
//
// Each reader is what users run, with its defaults unless its row says otherwise. One that is later than docs/readers.md says fails.
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
	fmt.Println("| reader | registry | out: p50, p99 | back: p50, p99 | the page says | changes |")
	fmt.Println("|---|---|---|---|---|---|")
	late := false
	for _, r := range chosen {
		m, err := r.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		fmt.Printf("| %s | %s | %s, %s | %s, %s | %s | %d |\n", r.name, m.registry, at(m.out, 50), at(m.out, 99), at(m.back, 50), at(m.back, 99),
			r.page, len(m.out))
		if worst := max(slices.Max(m.out), slices.Max(m.back)); worst > r.page {
			late = true
			fmt.Printf("%s noticed a change after %s: docs/readers.md says %s\n", r.name, worst.Round(time.Millisecond), r.page)
		}
	}
	if late {
		return command.ErrFailed
	}
	return nil
}

// at is a percentile.
func at(all []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)-1)*percent/100].Round(time.Millisecond)
}
