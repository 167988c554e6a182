// Package calls puts what every call to a registry has to pass, such as a guard or a timer, around a driver with all of
// its optional capabilities, and joins calls that are made at once into batches where the driver takes them.
package calls
