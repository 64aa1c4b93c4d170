package lease_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/lease"
	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/internal/tasks"
)

// subscribed returns a subscription on a real server, and a client to publish with.
func subscribed(t *testing.T) (*lease.Subscription, *redis.Client, *redistest.Server) {
	s := redistest.Start(t)
	set := tasks.New()
	closeAfter(t, set)
	return lease.NewSubscription(s.Client(), set), s.Client(), s
}

// hear waits for the next piece of news.
func hear(t *testing.T, news <-chan lease.News) lease.News {
	t.Helper()
	select {
	case n := <-news:
		return n
	case <-time.After(15 * time.Second):
		t.Fatal("nothing heard for 15 s")
		panic("unreachable")
	}
}

func follow(s *lease.Subscription, channel string) (<-chan lease.News, func()) {
	news := make(chan lease.News, 100)
	return news, s.Follow(channel, func(n lease.News) { news <- n })
}

func TestAFollowerHearsThatItHearsAndThenEveryMessage(t *testing.T) {
	s, rdb, _ := subscribed(t)
	news, stop := follow(s, "c")
	defer stop()
	if n := hear(t, news); !n.Joined {
		t.Fatal(n)
	}
	for i := range 10 {
		if n, err := rdb.Publish(t.Context(), "c", i).Result(); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	for i := range 10 {
		if n := hear(t, news); n.Joined || n.Payload != fmt.Sprint(i) {
			t.Fatal(n)
		}
	}
	second, stop := follow(s, "c")
	defer stop()
	if n := hear(t, second); !n.Joined {
		t.Fatal("a second follower was not told that it hears")
	}
}

func TestAThousandChannelsShareOneConnection(t *testing.T) {
	s, rdb, _ := subscribed(t)
	var all sync.WaitGroup
	for i := range 1000 {
		all.Go(func() {
			wake, stop := s.Listen(fmt.Sprint("c", i))
			defer stop()
			<-wake
		})
	}
	all.Wait()
	clients, err := rdb.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(clients); n == 0 {
		t.Fatal("no clients")
	}
	if killed, err := rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result(); killed != 1 || err != nil {
		t.Fatalf("%d connections, %v", killed, err)
	}
}

func TestAFollowerHearsAgainAfterItsConnectionWasKilledOrItsServerRestarted(t *testing.T) {
	s, rdb, server := subscribed(t)
	news, stop := follow(s, "c")
	defer stop()
	hear(t, news)
	for what, breaks := range map[string]func(){
		"kill":      func() { rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub") },
		"restart":   server.Restart,
		"reconnect": s.Reconnect,
	} {
		breaks()
		if n := hear(t, news); !n.Joined {
			t.Fatalf("%s: %v", what, n)
		}
		if err := rdb.Publish(t.Context(), "c", what).Err(); err != nil {
			t.Fatal(err)
		}
		for n := hear(t, news); n.Payload != what; n = hear(t, news) {
			if !n.Joined {
				t.Fatalf("%s: %v", what, n)
			}
		}
	}
}

func TestAConnectionThatHangsIsReplaced(t *testing.T) {
	s, rdb, server := subscribed(t)
	news, stop := follow(s, "c")
	defer stop()
	hear(t, news)
	server.Pause()
	<-time.After(7 * time.Second) // a question after 3 s of silence, and 3 s for an answer
	server.Resume()
	if n := hear(t, news); !n.Joined {
		t.Fatal(n)
	}
	if err := rdb.Publish(t.Context(), "c", "x").Err(); err != nil {
		t.Fatal(err)
	}
	for n := hear(t, news); n.Payload != "x"; n = hear(t, news) {
	}
}

func TestAChannelThatNobodyFollowsIsLeft(t *testing.T) {
	s, rdb, _ := subscribed(t)
	news, stop := follow(s, "c")
	hear(t, news)
	stop()
	for deadline := time.Now().Add(15 * time.Second); ; <-time.After(20 * time.Millisecond) {
		subscribers, err := rdb.PubSubNumSub(t.Context(), "c").Result()
		if err != nil {
			t.Fatal(err)
		}
		if subscribers["c"] == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("still subscribed")
		}
	}
	again, stop := follow(s, "c")
	defer stop()
	if n := hear(t, again); !n.Joined {
		t.Fatal(n)
	}
}
