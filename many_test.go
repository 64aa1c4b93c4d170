//go:build !race

package onefill_test

// manyGoroutines is how many callers the largest crowd has.
const manyGoroutines = 100_000
