//go:build !race

package lifecycle

const (
	everyRow      = 1
	modelWalks    = 600
	leavesMutants = false
)
