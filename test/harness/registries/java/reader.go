package java

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// Reader is a client of a registry that does not know Rollcall: a program that answers each line on its standard input
// with a line of JSON. It is safe for concurrent use.
type Reader struct {
	cmd *exec.Cmd

	mu  sync.Mutex // one question at a time
	in  io.WriteCloser
	out *bufio.Reader
	log *bytes.Buffer // read when it has ended
}

// StartReader runs a command of [Jars.Command]. The program is compiled first: it takes some seconds until it answers. Stop
// ends it, and so does the end of this process, which closes its input.
func StartReader(ctx context.Context, java string, args []string) (*Reader, error) {
	r := &Reader{log: &bytes.Buffer{}}
	r.cmd = exec.CommandContext(context.WithoutCancel(ctx), java, args...)
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "LC_ALL=C.UTF-8"}
	process.OwnGroup(r.cmd)
	r.cmd.Stderr = r.log
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("starting a reader: %w", err)
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a reader: %w", err)
	}
	r.out = bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a reader: %w", err)
	}
	return r, nil
}

// Ask sends a line, and decodes the line that answers it.
func (r *Reader) Ask(question string, answer any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := io.WriteString(r.in, question+"\n")
	var line []byte
	if err == nil {
		line, err = r.out.ReadBytes('\n')
	}
	if err != nil {
		return fmt.Errorf("the reader died: %w\n%s", errors.Join(err, r.cmd.Wait()), r.log)
	}
	if err := json.Unmarshal(line, answer); err != nil {
		return fmt.Errorf("the reader's answer %q: %w", line, err)
	}
	return nil
}

// Stop ends the program and waits for its end.
func (r *Reader) Stop() {
	_ = r.in.Close()
	_ = r.cmd.Cancel()
	_ = r.cmd.Wait()
}
