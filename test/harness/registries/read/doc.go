// Package read asks each registry what a client of the registry asks it, without the drivers: for whoever wants to know
// what clients are told. Each function reads one service and tells whose each entry is by its mark.
package read
