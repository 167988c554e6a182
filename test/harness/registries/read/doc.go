// Package read asks each registry what a client of the registry asks it, without the drivers: to know what clients
// are given. Each function reads one service and tells whose each entry is by its mark.
package read
