package cache_test

import (
	"fmt"
	"time"

	"github.com/onefill/onefill/internal/cache"
)

func Example() {
	c := cache.New(64 << 20)
	users := c.NewGroup("users", nil)

	hash := c.Hash(users, "42")
	c.Store(hash, &cache.Entry{Key: "42", Group: users, Data: "Ada", Fresh: c.Clock().Exact() + int64(time.Minute), Number: 7}, 0)
	if e := c.Get(hash, users, "42"); e != nil && e.Fresh > c.Clock().Now() {
		fmt.Println(e.Data)
	}

	c.Invalidate(hash, users, "42", 8, nil)
	fmt.Println(c.Get(hash, users, "42"))
	// Output:
	// Ada
	// <nil>
}
