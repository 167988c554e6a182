// Package driverkit holds what registry drivers have in common: reading the configuration, talking HTTP to one of several
// servers, and giving each error its class. A driver need not use it; every driver of this repository does.
//
// No function of the kit retries a change, waits longer than its context, or shows a secret in an error.
package driverkit
