//go:build race

package onefill_test

// manyGoroutines is less than the 8,128 that the race detector bears.
const manyGoroutines = 8_000
