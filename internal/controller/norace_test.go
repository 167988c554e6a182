//go:build !race

package controller

const modelWalks = 300
