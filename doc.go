// Package onefill is a cache that application instances embed and that fills each key once: however many callers, goroutines and processes ask for a key that
// nobody has, one of them loads it and all get the value.
//
// # Usage
//
// A process has one [Mesh], its membership in a pool of processes, and in it a [Group] for each kind of value:
//
//	pool, err := peers.NewPool(self, peers.DNS("users.prod.svc:7946"), peers.Config{Secrets: []string{secret}})
//	mesh, err := onefill.New(onefill.Config{Namespace: "shop-prod", Peers: pool})
//	users, err := onefill.NewGroup(mesh, "users", db.User, onefill.TTL(5*time.Minute))
//	go pool.ListenAndServe()
//
//	u, err := users.Get(ctx, "42")
//
// Package peers is the pool over HTTP. Without Peers a process is a pool of one. Package l2 is the tier, a Redis that pools share; without it each pool loads a
// key for itself.
//
// # One read
//
// Get looks into this process's memory. If the key is not there, fresh, it asks the process that owns it, all processes agreeing who that is, and that
// process looks into its memory, joins the load that is under way, or starts one. If the owner cannot be reached, the next in rank is asked; if that cannot
// be reached either, the process loads the value itself. With a tier, whoever fills a key looks there first, and claims it before loading.
//
// Values are fresh for [TTL]. One that is read near its end is loaded again in the background; with [StaleFor] it is also served after its end while that goes on.
//
// # Concurrency
//
// Everything exported is safe for concurrent use, unless its comment says otherwise. All who ask for a key at the same time share one question to its owner
// and one load. Each waits as long as its own context allows; the load runs on a context of its own, which LoadTimeout ends, and goes on when a caller
// leaves.
//
// Values are shared too: by all callers in a process, and a []byte with the cache itself. They must not be modified. [Copy] gives each caller its own.
//
// # What a loader must know
//
// It may run for a caller in another process. So it depends on its key alone: not on values in its context, of which only trace context and declared
// [Baggage] travel between processes. It may call Get, also for keys whose loaders call Get: a loader that comes back to a key that is being loaded around it
// loads that key alone; the third time it gets [ErrRecursion]. What it has to say about its value, such as its life or that there is none, it says to
// [FillFrom].
//
// Its error reaches everyone who waited for that load and is not cached. What others get of it, in other processes, is a [*LoadError] with its text.
//
// # Groups and tenants
//
// Groups share nothing but the mesh's memory: a group is named in every process alike, with the same kind of value, and its [Version] changes when that kind
// does. Tenants are groups of their own, or share one with the tenant as a prefix of the key:
//
//	u, err := users.Get(ctx, tenant+"/"+id)
//
// # What to expect
//
// It is a cache: whatever it holds, a loader can make again, and it may forget anything at any time. A load can run twice when a process that loads dies or is
// cut off from the others, or while members come and go: it promises no mutual exclusion. After Delete or Set has returned nil, no process of the pool
// that knows the same members returns what was loaded before. An error, [*InvalidateError], names the processes that were not reached and may.
// One hole is known: several Sets of a cold key at the same moment as Gets of it can leave a process with a copy of what was loaded between them, for up to
// HotTTL.
//
// # The end
//
// [Mesh.Close] comes before http.Server.Shutdown of a server that the pool is mounted on; its comment says why.
package onefill
