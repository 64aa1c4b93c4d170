// This file is the Average: a mean that all processes keep together.

package lock

import (
	"context"
	"fmt"
	"math"
	"time"
)

// averageKept is how long an average lives after the last number was added.
const averageKept = 30 * 24 * time.Hour

// Average is the mean of all numbers that any process adds under one name. Count and total change together. It is forgotten 30 days after the last Add.
type Average struct{ lock }

// Average returns the average of that name (1 to 1024 bytes). Making it costs no trip; a wrong name is ErrInvalid at its first use.
func (c *Client) Average(name string) *Average { return &Average{c.lock(kindAverage, name, nil)} }

// Add adds one number. Errors: ErrInvalid for NaN and the infinities, ErrUnavailable, ErrClosed, or ctx's own; after the last three the number may have been
// added or not, and where the Redis client repeats a command whose reply was lost, twice.
func (a *Average) Add(ctx context.Context, x float64) error {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("%w: %v: want a finite number", ErrInvalid, x)
	}
	if err := a.usable(); err != nil {
		return err
	}
	return storeError(ctx, a.client.store.add(ctx, a.room, x))
}

// Get returns the mean and how many numbers are in it; zero and zero when there are none. Errors: ErrUnavailable, ErrClosed, or ctx's own.
func (a *Average) Get(ctx context.Context) (mean float64, count int64, err error) {
	if err := a.usable(); err != nil {
		return 0, 0, err
	}
	mean, count, err = a.client.store.mean(ctx, a.room)
	return mean, count, storeError(ctx, err)
}

func (a *Average) usable() error {
	if a.err == nil && a.client.closed() {
		return ErrClosed
	}
	return a.err
}
