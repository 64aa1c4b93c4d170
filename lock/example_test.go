package lock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/lock"
)

func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locks, err := lock.New(rdb, lock.Config{Prefix: "shop:lock"})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = locks.Close() }()

	err = locks.Mutex("price-list").Do(context.Background(), func(ctx context.Context, lease *lock.Lease) error {
		return publish(ctx, "price-list", lease.Fence())
	})
	if errors.Is(err, lock.ErrUnavailable) {
		log.Print("Redis cannot be asked: nothing was done")
	}
}

// A nightly job of many steps: it renews its lease at each step, for longer than the step can take, and checks before it commits.
func ExampleLease_Check() {
	locks := lock.Local() // lock.New in a program of more than one process
	ctx := context.Background()

	lease, err := locks.Mutex("nightly", lock.TTL(60*time.Second)).TryLock(ctx)
	if errors.Is(err, lock.ErrNotAcquired) {
		return // it runs elsewhere
	} else if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lease.Release(ctx) }()

	for _, step := range []string{"collect", "sort", "sum"} {
		if err := lease.Renew(ctx, 60*time.Second); err != nil {
			log.Fatal(err) // ErrLost: somebody else runs it now
		}
		fmt.Println(step)
	}
	if err := lease.Check(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("commit")
	// Output:
	// collect
	// sort
	// sum
	// commit
}

// A report is exported under a read lock, beside other readers; only to mark it as exported does it become the writer.
func ExampleLease_Upgrade() {
	locks := lock.Local()
	ctx := context.Background()

	lease, err := locks.RWMutex("report:7").RLock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = lease.Release(ctx) }()
	fmt.Println("export")

	switch err := lease.Upgrade(ctx); {
	case errors.Is(err, lock.ErrConflict):
		fmt.Println("another reader marks it: release and start again")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println("mark as exported")
	}
	// Output:
	// export
	// mark as exported
}

// A partner allows four calls at a time, from all our processes together.
func ExampleClient_Semaphore() {
	locks := lock.Local()
	slots := locks.Semaphore("partner", 4)

	err := slots.Do(context.Background(), func(ctx context.Context, _ *lock.Lease) error {
		fmt.Println("call the partner") // with ctx, which ends if the slot is lost
		return nil
	})
	fmt.Println(err)
	// Output:
	// call the partner
	// <nil>
}

// Ten webhooks a second, however many workers send them.
func ExampleClient_Throttle() {
	locks := lock.Local()
	webhooks := locks.Throttle("webhooks", 10, time.Second)

	for i := range 3 {
		if err := webhooks.Wait(context.Background()); err != nil {
			log.Fatal(err)
		}
		fmt.Println("send webhook", i)
	}
	// Output:
	// send webhook 0
	// send webhook 1
	// send webhook 2
}

// Of many instances that start at once one runs the migration, and the others wait until it is done.
func ExampleClient_Once() {
	locks := lock.Local()
	migrate := func(context.Context) error {
		fmt.Println("migrate")
		return nil
	}
	for range 3 {
		ran, err := locks.Once(context.Background(), "migration-2026-05", 24*time.Hour, migrate)
		fmt.Println(ran, err)
	}
	// Output:
	// migrate
	// true <nil>
	// false <nil>
	// false <nil>
}

// The process that takes an order locks it, and the worker that ships it takes the lease over, with no moment in between when somebody else could.
func ExampleClient_Adopt() {
	locks := lock.Local()
	ctx := context.Background()

	taken, err := locks.Mutex("order:42").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	message := taken.Token() // goes to the worker, by a queue that is not public

	adopted, err := locks.Adopt(ctx, message) // on the worker's Client
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("same lease:", adopted.Fence() == taken.Fence())
	fmt.Println(taken.Check(ctx))
	fmt.Println(adopted.Release(ctx))
	// Output:
	// same lease: true
	// lock: lease lost
	// <nil>
}

// A database refuses a writer that has lost its lease without knowing it: each write carries the fence, and the row remembers the highest.
func ExampleLease_Fence() {
	save := func(ctx context.Context, db *sql.DB, lease *lock.Lease, total int) error {
		result, err := db.ExecContext(ctx,
			`UPDATE account SET total = $1, fence = $2 WHERE id = 7 AND fence <= $2`, total, int64(lease.Fence()))
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return fmt.Errorf("a later holder has written: %w", errors.Join(lock.ErrLost, err))
		}
		return nil
	}
	_ = save

	// The same rule, in memory:
	var highest uint64
	accept := func(fence uint64) bool {
		if fence < highest {
			return false
		}
		highest = fence
		return true
	}
	locks := lock.Local()
	ctx := context.Background()
	stale, _ := locks.Mutex("account:7").Lock(ctx)
	_ = stale.Release(ctx)
	current, _ := locks.Mutex("account:7").Lock(ctx)
	fmt.Println(accept(current.Fence()), accept(stale.Fence()))
	// Output: true false
}

// publish stands for work.
func publish(context.Context, string, uint64) error { return nil }
