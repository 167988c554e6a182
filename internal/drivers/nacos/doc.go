// Package nacos TODO.
package nacos
