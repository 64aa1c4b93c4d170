package redistest_test

import (
	"testing"

	"github.com/onefill/onefill/internal/redistest"
)

func TestServerRestartsEmptyOnTheSamePort(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	if n, err := client.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Fatalf("after the restart: %d keys, %v", n, err)
	}
}

func TestClusterServesEverySlot(t *testing.T) {
	client := redistest.StartCluster(t).Client()
	for _, key := range []string{"a", "b", "c", "d"} {
		if err := client.Set(t.Context(), key, "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFailoverPromotesTheReplica(t *testing.T) {
	s := redistest.StartSentinel(t)
	client := s.Client()
	if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Failover()
	if err := client.Set(t.Context(), "k", "w", 0).Err(); err != nil {
		t.Fatal(err)
	}
}
