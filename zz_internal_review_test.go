package onefill

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

func TestI12Retries(t *testing.T) {
	for _, n := range []int{4000, 8000} {
		var r retries
		began := time.Now()
		for i := range n {
			r.failed(fmt.Sprint(i), 30*time.Second)
		}
		t.Log(n, "keys fail:", time.Since(began), "remembered", len(r.m))
	}
}

func TestI20TimeSize(t *testing.T) {
	loc, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	time.Local = loc
	type order struct{ At time.Time }
	v := order{time.Now()}
	u := order{time.Now().UTC()}
	t.Log("local", sizeOf(reflect.ValueOf(v)), "utc", sizeOf(reflect.ValueOf(u)))
}
