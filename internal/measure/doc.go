// Package measure is what the commands that measure have in common: their report (report.go), percentiles (wait.go), the log of loads (loadlog.go), the
// processes that they start of themselves (process.go), their Redis (redis.go), and how they are called and end (command.go). What is measured is not known here.
package measure
