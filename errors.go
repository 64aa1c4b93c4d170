// Every error that onefill makes: sentinels for states, types where a caller needs data.

package onefill

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNotFound says that the source has no value for the key. A loader returns it, or wraps it, or calls Fill.NotFound; Get returns it, also when
	// the loader ran in another process.
	ErrNotFound = errors.New("onefill: not found")
	// ErrClosed is returned by every method of a mesh or group that was closed.
	ErrClosed = errors.New("onefill: closed")
	// ErrKeyTooLong is returned for a key longer than MaxKeyBytes, before anyone is asked.
	ErrKeyTooLong = errors.New("onefill: key too long")
	// ErrRecursion ends a chain of loaders that comes to the same key for the third time.
	ErrRecursion = errors.New("onefill: a loader reads its own key again and again")
	// ErrLoadTimeout is what callers get when a loader went on for longer than LoadTimeout and did not obey its context.
	ErrLoadTimeout = errors.New("onefill: the loader did not return within LoadTimeout")
	// ErrOverloaded is returned where more callers wait than MaxWaiting allows, or where a peer stayed busy.
	ErrOverloaded = errors.New("onefill: overloaded")
)

// LoadError is the error of a loader that ran in another process. Only its text travels. errors.Is finds ErrNotFound and the other sentinels of this package
// in it, but not the loader's own errors.
type LoadError struct {
	Peer  string // ID of the process where the loader ran
	Group string
	Text  string // the loader's error text

	cause error
}

func (e *LoadError) Error() string {
	return fmt.Sprintf("onefill: load of group %q at %s: %s", e.Group, e.Peer, e.Text)
}

// Unwrap returns the sentinel of this package that stands for the failure, if one does.
func (e *LoadError) Unwrap() error { return e.cause }

// PanicError is what every waiter gets when a loader panicked or called runtime.Goexit.
type PanicError struct {
	Peer  string // ID of the process where it happened; empty for this one
	Group string
	Value any    // what was passed to panic; its text where it happened in another process; nil for runtime.Goexit
	Stack string // of the goroutine that panicked
}

func (e *PanicError) Error() string {
	what := "the loader called runtime.Goexit"
	if e.Value != nil {
		what = fmt.Sprintf("the loader panicked: %v", e.Value)
	}
	where := ""
	if e.Peer != "" {
		where = " at " + e.Peer
	}
	return fmt.Sprintf("onefill: load of group %q%s: %s\n%s", e.Group, where, what, e.Stack)
}

// Unwrap returns the value that was passed to panic if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// EncodeError is what processes other than the loading one get for a value that its codec cannot encode.
type EncodeError struct {
	Peer  string // ID of the process that has the value; empty for this one
	Group string
	Err   error
}

func (e *EncodeError) Error() string {
	return fmt.Sprintf("onefill: value of group %q cannot be encoded: %v", e.Group, e.Err)
}

// Unwrap returns the codec's error, or its text where it came from another process.
func (e *EncodeError) Unwrap() error { return e.Err }

// InvalidateError says whom a Delete, a Set or a Refresh could not reach. What could be reached has been.
type InvalidateError struct {
	Group     string
	Unreached []string // IDs of processes
	Err       error    // the reasons, joined
}

func (e *InvalidateError) Error() string {
	return fmt.Sprintf("onefill: group %q: not reached: %s: %v", e.Group, strings.Join(e.Unreached, ", "), e.Err)
}

// Unwrap returns the reasons.
func (e *InvalidateError) Unwrap() error { return e.Err }

// failure returns the error for a value that could not be had, as an answer for a peer.
func failure(err error) *Answer {
	a := &Answer{Status: StatusError, Text: err.Error()}
	var panicked *PanicError
	var encode *EncodeError
	switch {
	case errors.Is(err, ErrNotFound):
		a.Status = StatusNotFound
	case errors.As(err, &panicked):
		a.Status, a.Stack, a.Text = StatusPanic, panicked.Stack, ""
		if panicked.Value != nil {
			a.Text = fmt.Sprint(panicked.Value)
		}
	case errors.As(err, &encode):
		a.Status, a.Text = StatusEncode, encode.Err.Error()
	case errors.Is(err, ErrRecursion):
		a.Status = StatusRecursion
	case errors.Is(err, ErrLoadTimeout):
		a.Status = StatusLoadTimeout
	case errors.Is(err, ErrKeyTooLong):
		a.Status = StatusKeyTooLong
	case errors.Is(err, ErrOverloaded):
		a.Status = StatusBusy
	case errors.Is(err, ErrClosed):
		a.Status = StatusClosed
	}
	return a
}

// loaderFailure is failure for a loader's own error: whatever that wraps, it is no word about the process that the loader ran in.
func loaderFailure(err error) *Answer {
	a := failure(err)
	if a.Status == StatusBusy || a.Status == StatusClosed {
		a.Status = StatusError
	}
	return a
}

// failed turns the answer of a peer that has no value back into an error.
func (a *Answer) failed(peer, group string) error {
	load := &LoadError{Peer: peer, Group: group, Text: a.Text}
	switch a.Status {
	case StatusNotFound:
		return ErrNotFound
	case StatusPanic:
		p := &PanicError{Peer: peer, Group: group, Stack: a.Stack}
		if a.Text != "" {
			p.Value = a.Text
		}
		return p
	case StatusEncode:
		return &EncodeError{Peer: peer, Group: group, Err: errors.New(a.Text)}
	case StatusRecursion:
		load.cause = ErrRecursion
	case StatusLoadTimeout:
		load.cause = ErrLoadTimeout
	case StatusKeyTooLong:
		load.cause = ErrKeyTooLong
	}
	return load
}

// moveOn reports whether the answer is a reason to ask the next process: this one cannot know the value.
func (a *Answer) moveOn() bool {
	return a.Status == StatusUnknownGroup || a.Status == StatusOtherVersion || a.Status == StatusClosed
}
