// Processes that a command starts of itself: the same program once more, in a role. They are told what to do by JSON lines on their standard input, and
// answer on their standard output. They die with the command, however that dies.

package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
)

const roleVariable = "ONEFILL_ROLE"

// Role is what this process is to be, as Start was told. It is empty in a process that Start has not started.
func Role() string { return os.Getenv(roleVariable) }

// Process is a process that Start has started. Calls are made one at a time.
type Process struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	orders  *json.Encoder
	answers *json.Decoder
}

// reply is how an answer travels.
type reply[A any] struct {
	Error  string `json:"error,omitempty"`
	Answer A      `json:"answer"`
}

// Start starts this program once more in a role. What the process logs goes to this one's standard error. It is killed when ctx ends; Stop and Kill end it
// before that, and one of them must be called.
func Start(ctx context.Context, role string) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("measure: start %s: %w", role, err)
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = dieWithParent()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("measure: start %s: %w", role, err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("measure: start %s: %w", role, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("measure: start %s: %w", role, err)
	}
	return &Process{cmd: cmd, stdin: stdin, orders: json.NewEncoder(stdin), answers: json.NewDecoder(stdout)}, nil
}

// PID is the process's ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Call gives p an order and returns what it answers. It blocks until p answers or dies.
func Call[Q, A any](p *Process, order Q) (A, error) {
	var r reply[A]
	if err := p.orders.Encode(order); err != nil {
		return r.Answer, fmt.Errorf("measure: process %d: %w", p.PID(), err)
	}
	if err := p.answers.Decode(&r); err != nil {
		return r.Answer, fmt.Errorf("measure: process %d does not answer: %w", p.PID(), err)
	}
	if r.Error != "" {
		return r.Answer, fmt.Errorf("measure: process %d: %s", p.PID(), r.Error)
	}
	return r.Answer, nil
}

// Kill ends the process with SIGKILL, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only where it is gone already
	_ = p.cmd.Wait()         // "signal: killed"
}

// Stop lets the process end by itself: its Serve returns. It returns when the process is gone, with an error if that went wrong.
func (p *Process) Stop() error {
	_ = p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("measure: process %d: %w", p.PID(), err)
	}
	return nil
}

// Serve is the other side of Call: it gives each order to carryOut, one at a time, and returns once the process that gives them has no more, or has died. An
// interrupt from the keyboard, which goes to both, is that process's business. Standard output belongs to Serve.
func Serve[Q, A any](carryOut func(Q) (A, error)) error {
	signal.Ignore(os.Interrupt)
	answers := json.NewEncoder(os.Stdout)
	orders := json.NewDecoder(os.Stdin)
	for {
		var order Q
		if err := orders.Decode(&order); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("measure: orders: %w", err)
		}
		answer, err := carryOut(order)
		r := reply[A]{Answer: answer}
		if err != nil {
			r.Error = err.Error()
		}
		if err := answers.Encode(r); err != nil {
			return fmt.Errorf("measure: answers: %w", err)
		}
	}
}
