// The log of loads: a file to which every process appends a line when a load begins, so that anyone can count loads from outside.

package measure

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// LoadLog appends to a file that any number of processes share. Its methods are safe for concurrent use. A nil *LoadLog keeps nothing.
type LoadLog struct{ file *os.File }

// OpenLoadLog opens the log in a file, which it makes if there is none and never truncates. The log of no name, "", is nil.
func OpenLoadLog(name string) (*LoadLog, error) {
	if name == "" {
		return nil, nil
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("measure: load log: %w", err)
	}
	return &LoadLog{file}, nil
}

// loadLine is one line of the log.
type loadLine struct {
	Time    int64   `json:"t"` // Unix milliseconds
	PID     int     `json:"pid"`
	Cluster string  `json:"cluster"`
	Key     string  `json:"key"`
	Took    float64 `json:"ms"` // what the load is meant to take
}

// Begin notes that a load of key begins now in this process and is meant to take d. The line goes out in one write, so that lines of processes do not mix.
func (l *LoadLog) Begin(cluster, key string, d time.Duration) error {
	if l == nil {
		return nil
	}
	line, err := json.Marshal(loadLine{time.Now().UnixMilli(), os.Getpid(), cluster, key, Milliseconds(d)})
	if err != nil {
		return fmt.Errorf("measure: load log: %w", err)
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("measure: load log: %w", err)
	}
	return nil
}

// Close closes the file.
func (l *LoadLog) Close() error {
	if l == nil {
		return nil
	}
	return l.file.Close()
}
