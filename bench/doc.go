// Package bench measures onefill beside the caches that people would otherwise use. It holds benchmarks only, nothing to import; README.md says how to
// run each and what it measures. The rivals are required here, in a module of their own, so that nobody who uses onefill inherits them.
package bench
