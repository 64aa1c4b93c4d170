package bench

// rueidisaside as a contender. It returns values as strings, and keeps copies in memory that Redis invalidates.

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidisaside"
)

// openRueidisAside reads through the client's memory, and on a miss claims the key, loads and stores.
func openRueidisAside(b *testing.B, addr string) read {
	b.Helper()
	client, err := rueidisaside.NewClient(rueidisaside.ClientOption{ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	load := func(_ context.Context, key string) (string, error) { return string(makeValue(key, valueSize)), nil }
	return func(key string) (int, error) {
		value, err := client.Get(context.Background(), time.Hour, key, load)
		return len(value), err
	}
}
