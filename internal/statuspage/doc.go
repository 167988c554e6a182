// Package statuspage shows what the manager knows, read-only: which pods wait and why, what each service has in rotation, and how
// each registry answers. [Build] makes a [Snapshot] of the facts; [Page] serves it as HTML, as JSON, and live.
package statuspage
