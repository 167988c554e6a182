package process

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// CPU is how much CPU time a process has taken, in user and kernel mode.
func CPU(pid int) (time.Duration, error) {
	stat, err := statOf(pid)
	return time.Duration(stat.CPUTime() * float64(time.Second)), err
}

// Resident is a process's resident memory in MB.
func Resident(pid int) (float64, error) {
	stat, err := statOf(pid)
	return float64(stat.ResidentMemory()) / 1e6, err
}

func statOf(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("finding process %d: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("reading what process %d has used: %w", pid, err)
	}
	return stat, nil
}
