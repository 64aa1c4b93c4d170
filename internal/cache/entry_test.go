package cache

// This file holds the tests of what an entry holds and costs.

import (
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"testing"
	"unsafe"
)

func TestCopyHasEveryExportedFieldAndIsStoredNowhere(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	e := &Entry{Key: "k", Group: g, Data: "d", Value: 1, Fresh: 2, Flags: 3, More: &More{Trace: "4"}, Number: 5, Delta: 6, Twin: 7}
	c.put(e)
	was, is := reflect.ValueOf(e).Elem(), reflect.ValueOf(e.Copy()).Elem()
	for i := range was.NumField() {
		switch field := was.Type().Field(i); {
		case !field.IsExported():
			if !is.Field(i).IsZero() {
				t.Errorf("%s is copied", field.Name)
			}
		case was.Field(i).IsZero() || !was.Field(i).Equal(is.Field(i)):
			t.Errorf("%s is not copied, or not tested", field.Name)
		}
	}
}

func TestSizeCountsWhatAnEntryIsMadeOf(t *testing.T) {
	if strconv.IntSize == 64 && (unsafe.Sizeof(Entry{}) != nodeBytes || allocated(int(unsafe.Sizeof(More{}))) != moreBytes || unsafe.Sizeof(bucket{}) != 64) {
		t.Errorf("Entry has %d bytes, More %d, bucket %d", unsafe.Sizeof(Entry{}), unsafe.Sizeof(More{}), unsafe.Sizeof(bucket{}))
	}
	for _, tc := range []struct {
		entry *Entry
		size  int64
	}{
		{&Entry{}, 128},
		{&Entry{Key: "k"}, 144},
		{&Entry{Key: "sixteen bytes...", Data: "seventeen bytes.."}, 128 + 16 + 32},
		{&Entry{Value: 1, Twin: 100}, 228},
		{&Entry{More: &More{}}, 176},
		{&Entry{More: &More{Tags: []string{"a", "b"}, Trace: "00"}}, 176 + 32 + 16 + 16 + 16},
	} {
		if got := Size(tc.entry); got != tc.size {
			t.Errorf("Size(%+v) = %d, want %d", tc.entry.Key, got, tc.size)
		}
	}
}

func TestOverheadOfAnEntryInTheHeap(t *testing.T) {
	const entries, key, value = 100_000, 13, 100
	before := heap()
	c := New(1 << 30)
	g := c.NewGroup(anyName(), nil)
	for i := range entries {
		c.put(entry(g, fmt.Sprintf("key:%09d", i), 1, value))
	}
	overhead := float64(heap()-before)/entries - key - value
	t.Logf("%.1f bytes an entry", overhead)
	if overhead > 162 {
		t.Errorf("an entry costs %.1f bytes besides key and value, want at most 162", overhead)
	}
	if counted := float64(c.Bytes())/entries - key - value; counted < overhead*0.95 {
		t.Errorf("an entry costs %.1f bytes besides key and value, but only %.1f are counted", overhead, counted)
	}
	runtime.KeepAlive(c)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
