// Package l2 is the tier: the store that all clusters share, so that a key which is cold in many of them is loaded once. Redis keeps it in a Redis server,
// Memory in this process.
//
//	tier, err := l2.Redis(rdb, l2.Config{})
//	mesh, err := onefill.New(onefill.Config{Namespace: "shop-prod", Tier: tier})
//
// A process that misses asks with one script for the value or, if there is none, for a claim: the lease to fill the key. Whoever gets it loads and stores the
// value with a second script; everyone else waits and is woken. A claim carries a fence, a number that rises with every claim and invalidation of the key, and
// Redis refuses a value whose fence is not the key's last: a holder that was stopped for too long, or overtaken by a Delete, stores nothing.
//
// A tier never fails a read. Whatever is wrong with Redis costs a flight at most Config.TierTimeout; then the mesh does without. docs/redis.md says what the
// tier needs of a server and what it costs there.
//
// Reading the source: claim.go and fill.go are the way of a fill, scripts.go what happens inside Redis, names.go and envelope.go what is written there, message.go what is
// said to other clusters, breaker.go, wait.go and listen.go how failures, waiting and hearing work. memory.go has the same promises without Redis.
package l2
