// Package gate bounds the calls to one registry that are in flight, so that a slow service holds up no other and a registry
// that is down is not hammered. Nobody has to wait at it: who finds no slot is told so, and is woken
// when it is his turn.
package gate
