// Package driverkit has what registry drivers have in common: it reads the configuration, speaks HTTP to one of several servers,
// and gives each error its class. A driver does not have to use it; every driver of this repository does.
//
// No function of the package retries a change, waits longer than its context, or shows a secret in an error.
package driverkit
