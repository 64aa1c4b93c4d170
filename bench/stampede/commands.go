// What Redis counts of the commands that it gets.

package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/measure"
)

// counter reads how many commands clients have sent.
type counter struct {
	client   *redis.Client
	embedded bool
	sends    []string
}

func newCounter(server *measure.Redis, s strategy) (*counter, error) {
	options, err := redis.ParseURL(server.URL)
	if err != nil {
		return nil, err
	}
	return &counter{redis.NewClient(options), server.Embedded, s.sends}, nil
}

func (c *counter) close() { _ = c.client.Close() }

var (
	statPattern  = regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+)`)
	totalPattern = regexp.MustCompile(`(?m)^total_commands_processed:(\d+)`)
)

// read returns how many commands the strategy's clients have sent since the server's start, the signs of life aside that onefill's processes send each second:
// those are scripts that publish, as nothing else does, but for the one that wakes who waits. An embedded server only counts everything.
func (c *counter) read(ctx context.Context) (int, error) {
	if c.embedded {
		info, err := c.client.Info(ctx, "stats").Result()
		if err != nil {
			return 0, err
		}
		found := totalPattern.FindStringSubmatch(info)
		if found == nil {
			return 0, fmt.Errorf("no count of commands in %q", info)
		}
		return strconv.Atoi(found[1])
	}
	info, err := c.client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	calls := make(map[string]int)
	for _, found := range statPattern.FindAllStringSubmatch(info, -1) {
		if calls[found[1]], err = strconv.Atoi(found[2]); err != nil {
			return 0, err
		}
	}
	sent := -calls["publish"]
	for _, name := range c.sends {
		sent += calls[name]
	}
	return sent, nil
}
