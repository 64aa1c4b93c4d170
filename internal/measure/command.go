// How a command that measures is called and how it ends.

package measure

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// What a command exits with. 128 and the signal's number stand for an interrupt, as shells have it.
const (
	exitRan         = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// UsageError says, in one line, what is wrong with a command's arguments.
type UsageError struct{ Text string }

func (e *UsageError) Error() string { return e.Text }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }

// Run runs a command and returns what it is to exit with: 0 when it ran, 1 when it failed or a check of its own did, 2 when it was called wrongly, 130 when it
// was interrupted, which ends the context that it gets. Errors go to stderr, in a line.
func Run(name string, stderr io.Writer, command func(ctx context.Context) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command(ctx)
	var usage *UsageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitRan
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "%s: %v (-h lists the flags)\n", name, err)
		return exitUsage
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "%s: interrupted\n", name)
		return exitInterrupted
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	return exitFailed
}

// Parse parses a command's arguments, all of which must be flags. With -h it lists them on help and returns flag.ErrHelp; other errors are a *UsageError.
func Parse(flags *flag.FlagSet, help io.Writer, args []string) error {
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(help, "Usage of %s:\n", flags.Name())
		flags.SetOutput(help)
		flags.PrintDefaults()
		return flag.ErrHelp
	case err != nil:
		return &UsageError{err.Error()}
	case flags.NArg() > 0:
		return Usagef("unexpected argument %q: there are only flags", flags.Arg(0))
	}
	return nil
}
