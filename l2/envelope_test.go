// Envelopes and messages as bytes: what stands in testdata is what releases that are out there write and expect.

package l2

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/onefill/onefill"
)

var update = flag.Bool("update", false, "write the golden files anew")

var sampleKey = onefill.TierKey{Group: "users", Version: "1", Key: "42"}

// sample has something in every field that an envelope carries.
func sample() *onefill.Answer {
	return &onefill.Answer{
		Status: onefill.StatusValue, Data: "Ann", Number: 1700000000123456, Vouched: 1700000000123456, Delta: 450 * time.Millisecond,
		Tags: []string{"team:7", ""}, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Text: "text", Stack: "stack",
	}
}

func newEnvelopes(t testing.TB, cfg Config) *envelopes {
	t.Helper()
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	seal, err := newSeal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &envelopes{space: "shop-prod", seal: seal}
}

func secret(c string) []byte { return []byte(strings.Repeat(c, secretBytes)) }

// golden returns the content of a file in testdata, in hex so that it can be read, or writes it.
func golden(t *testing.T, name string, now []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name+".hex")
	if *update {
		if err := os.WriteFile(path, []byte(hex.Dump(now)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for line := range strings.Lines(string(text)) {
		digits := strings.ReplaceAll(line[10:58], " ", "")
		part, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, part...)
	}
	return b
}

// Contract: P13, L13
func TestEnvelopeKeepsItsBytesAcrossReleases(t *testing.T) {
	plain := newEnvelopes(t, Config{CompressAbove: -1})
	now, err := plain.write(sampleKey, sample().Number, sample())
	if err != nil {
		t.Fatal(err)
	}
	if want := golden(t, "envelope-plain", now); !bytes.Equal(now, want) {
		t.Errorf("an envelope is written as\n%sit was\n%s", hex.Dump(now), hex.Dump(want))
	}
	// What compression and encryption write may change with their libraries; what was written must stay readable.
	for name, cfg := range map[string]Config{
		"envelope-compressed": {CompressAbove: 1},
		"envelope-encrypted":  {CompressAbove: -1, Keys: []Key{{"k1", secret("x")}}},
		"envelope-both":       {CompressAbove: 1, Keys: []Key{{"k1", secret("x")}}},
	} {
		v := newEnvelopes(t, cfg)
		a := sample()
		a.Data = strings.Repeat("Ann", 100)
		now, err := v.write(sampleKey, a.Number, a)
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.read(sampleKey, string(golden(t, name, now)))
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%s: read %+v, %v; want %+v", name, got, err, a)
		}
	}
}

// Contract: P13
func TestReaderSkipsFieldsOfANewerRelease(t *testing.T) {
	v := newEnvelopes(t, Config{})
	a, err := readBody("\x09" + "\x05" + "\x01t" + "\x00" + "\x00" + "\x00" + "\x01z\x07" + "data")
	if err != nil || a.Data != "data" || a.Trace != "t" || a.Delta != 5*time.Microsecond {
		t.Fatalf("read %+v, %v", a, err)
	}
	b, _ := v.write(sampleKey, 1, sample())
	b[3] = '2'
	if _, err := v.read(sampleKey, string(b)); !errors.Is(err, errNotOurs) {
		t.Fatalf("an envelope of version 2: %v", err)
	}
}

// Contract: L13
func TestEveryFlippedBitIsFound(t *testing.T) {
	for name, cfg := range map[string]Config{"plain": {CompressAbove: -1}, "compressed": {CompressAbove: 1}, "encrypted": {Keys: []Key{{"k", secret("k")}}}} {
		t.Run(name, func(t *testing.T) {
			v := newEnvelopes(t, cfg)
			b, err := v.write(sampleKey, 17, sample())
			if err != nil {
				t.Fatal(err)
			}
			for i := range 8 * len(b) {
				b[i/8] ^= 1 << (i % 8)
				if a, err := v.read(sampleKey, string(b)); err == nil {
					t.Fatalf("bit %d flipped, and it reads %+v", i, a)
				}
				b[i/8] ^= 1 << (i % 8)
			}
			for n := range b {
				if _, err := v.read(sampleKey, string(b[:n])); err == nil {
					t.Fatalf("cut to %d bytes of %d, and it is read", n, len(b))
				}
			}
		})
	}
}

// Contract: L13, L15
func TestEnvelopeOpensForItsOwnEntryOnly(t *testing.T) {
	for name, cfg := range map[string]Config{"plain": {}, "encrypted": {Keys: []Key{{"k", secret("k")}}}} {
		t.Run(name, func(t *testing.T) {
			v := newEnvelopes(t, cfg)
			b, err := v.write(sampleKey, 17, sample())
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range []onefill.TierKey{{Group: "users", Version: "1", Key: "43"}, {Group: "user", Version: "s1", Key: "42"}, {Group: "users", Version: "2", Key: "42"}} {
				if _, err := v.read(k, string(b)); err == nil {
					t.Errorf("%+v opens what was written for %+v", k, sampleKey)
				}
			}
			other := *v
			other.space = "shop-test"
			if _, err := other.read(sampleKey, string(b)); err == nil {
				t.Error("another namespace opens it")
			}
		})
	}
}

// Contract: L15, S5
func TestEncryptionBindsBeyondTheChecksum(t *testing.T) {
	v := newEnvelopes(t, Config{Keys: []Key{{"k", secret("k")}}})
	b, err := v.write(sampleKey, 17, sample())
	if err != nil {
		t.Fatal(err)
	}
	forge := func(k onefill.TierKey, b []byte) error { // whoever can write to Redis can write checksums
		b = b[:len(b)-checksumBytes]
		sum := v.checksum(k, string(b[staleAt:]))
		for shift := 56; shift >= 0; shift -= 8 {
			b = append(b, byte(sum>>shift))
		}
		_, err := v.read(k, string(b))
		return err
	}
	if err := forge(sampleKey, bytes.Clone(b)); err != nil {
		t.Fatalf("untouched: %v", err)
	}
	if err := forge(onefill.TierKey{Group: "users", Version: "1", Key: "43"}, bytes.Clone(b)); !errors.Is(err, errCipher) {
		t.Errorf("moved to another key: %v", err)
	}
	status := bytes.Clone(b)
	status[statusAt] = byte(onefill.StatusNotFound)
	if err := forge(sampleKey, status); !errors.Is(err, errCipher) {
		t.Errorf("with another status: %v", err)
	}
	plain, _ := newEnvelopes(t, Config{}).write(sampleKey, 17, sample())
	if err := forge(sampleKey, plain); !errors.Is(err, errPlain) {
		t.Errorf("written without a key: %v", err)
	}
}

// Contract: O3, L15
func TestKeysRotateAndPlainValuesMigrate(t *testing.T) {
	one, two := Key{"one", secret("1")}, Key{"two", secret("2")}
	for _, c := range []struct {
		writes, reads Config
		want          error
	}{
		{Config{}, Config{CompressAbove: -1}, nil},
		{Config{CompressAbove: -1}, Config{CompressAbove: 1}, nil},
		{Config{Keys: []Key{one}}, Config{Keys: []Key{one, two}}, nil},
		{Config{Keys: []Key{one, two}}, Config{Keys: []Key{two, one}}, nil},
		{Config{Keys: []Key{two, one}}, Config{Keys: []Key{one, two}}, nil},
		{Config{Keys: []Key{two, one}}, Config{Keys: []Key{two}}, nil},
		{Config{Keys: []Key{two}}, Config{Keys: []Key{one}}, errKey},
		{Config{Keys: []Key{two}}, Config{}, errKey},
		{Config{Keys: []Key{{"one", secret("2")}}}, Config{Keys: []Key{one}}, errCipher},
		{Config{}, Config{Keys: []Key{one}}, errPlain},
		{Config{}, Config{Keys: []Key{one}, MigratePlain: true}, nil},
	} {
		a := sample()
		a.Data = strings.Repeat("x", 5000)
		b, err := newEnvelopes(t, c.writes).write(sampleKey, a.Number, a)
		if err != nil {
			t.Fatal(err)
		}
		got, err := newEnvelopes(t, c.reads).read(sampleKey, string(b))
		if !errors.Is(err, c.want) || err == nil && !reflect.DeepEqual(got, a) {
			t.Errorf("written with %+v, read with %+v: %v, want %v", c.writes, c.reads, err, c.want)
		}
	}
}

// Contract: L15
func TestOnlyWhatGetsSmallerIsCompressed(t *testing.T) {
	v := newEnvelopes(t, Config{})
	for _, c := range []struct {
		data string
		want bool
	}{{strings.Repeat("x", 500), false}, {strings.Repeat("x", 5000), true}, {noise(5000), false}} {
		b, err := v.write(sampleKey, 1, &onefill.Answer{Status: onefill.StatusValue, Data: c.data})
		if err != nil {
			t.Fatal(err)
		}
		if got := b[formAt]&compressed != 0; got != c.want || len(b) > len(c.data)+bodyAt+checksumBytes+16 {
			t.Errorf("%d bytes: compressed %v to %d bytes, want %v", len(c.data), got, len(b), c.want)
		}
	}
}

// noise returns bytes that do not compress.
func noise(n int) string {
	b, x := make([]byte, n), uint64(1)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return string(b)
}

// Contract: P13
func TestMessagesKeepTheirBytesAcrossReleases(t *testing.T) {
	inv := &onefill.Invalidation{Group: "users", Version: "1", Number: 1700000000123456, Keys: []string{"42", "\xff\x00", ""}, Trace: "00-1-2-01"}
	now := writeInvalidation(senderOf(0xabcdef), inv, inv.Keys)
	want := string(golden(t, "message-invalidation", []byte(now)))
	if now != want {
		t.Errorf("an invalidation is written as\n%sit was\n%s", hex.Dump([]byte(now)), hex.Dump([]byte(want)))
	}
	m, err := readMessage(want)
	if err != nil || m.sender != "0000000000abcdef" || !reflect.DeepEqual(m.invalidation, inv) {
		t.Errorf("read %+v, %v", m, err)
	}
	if m, err := readMessage(string(golden(t, "message-canary", []byte(writeCanary(senderOf(7)))))); err != nil || m.kind != kindCanary || m.sender != senderOf(7) {
		t.Errorf("read %+v, %v", m, err)
	}
	for _, newer := range []string{"1fm2anything", strings.Replace(want, "1fm1i", "1fm1z", 1)} {
		if _, err := readMessage(newer); !errors.Is(err, errUnknown) {
			t.Errorf("%q: %v", newer, err)
		}
	}
	if _, err := readMessage(strings.Replace(want, "1700000000123456", "9999999999999999", 1)); !errors.Is(err, errMessage) { // it would stop all counting
		t.Errorf("a number that Lua cannot hold: %v", err)
	}
	if m, err := readMessage(want + "more fields"); err != nil || !reflect.DeepEqual(m.invalidation, inv) {
		t.Errorf("with fields of a newer release: %+v, %v", m, err)
	}
	for n := range want {
		if m, err := readMessage(want[:n]); err == nil && len(m.invalidation.Keys) > 0 {
			t.Errorf("cut to %d bytes it is read as %+v", n, m.invalidation)
		}
	}
}

// Contract: P13, R11
func TestKeysKeepTheirNamesAcrossReleases(t *testing.T) {
	n := nameOf(namespace("shop-prod"), sampleKey)
	want := names{
		"shop-prod:{8115ac1a0f77e02b}:v:users:42", "shop-prod:{8115ac1a0f77e02b}:l:users:42",
		"shop-prod:{8115ac1a0f77e02b}:f:users:42", "shop-prod:{8115ac1a0f77e02b}:e:users:42",
	}
	if n != want {
		t.Errorf("the keys are called %+v, they were %+v", n, want)
	}
	if got := nameOf(namespace("a{b}%"), onefill.TierKey{Group: "g", Key: "{}"}).value; !strings.HasPrefix(got, "a%7Bb%7D%25:{") || !strings.HasSuffix(got, "}:v:g:{}") {
		t.Errorf("braces: %q", got)
	}
}

// Contract: S5
func FuzzReadEnvelope(f *testing.F) {
	plain := newEnvelopes(f, Config{})
	coded := newEnvelopes(f, Config{CompressAbove: 1, Keys: []Key{{"k", secret("k")}}, MigratePlain: true})
	for _, v := range []*envelopes{plain, coded, newEnvelopes(f, Config{CompressAbove: 1})} {
		b, err := v.write(sampleKey, 17, sample())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b[bodyAt:len(b)-checksumBytes]), b[formAt])
	}
	f.Fuzz(func(t *testing.T, body string, form byte) {
		b := append([]byte(envelopeMagic), strings.Repeat("0", staleAt-len(envelopeMagic)+staleDigits)...)
		b = append(append(b, byte(onefill.StatusValue), form), body...)
		for _, v := range []*envelopes{plain, coded} {
			sum := v.checksum(sampleKey, string(b[staleAt:]))
			whole := bytes.Clone(b)
			for shift := 56; shift >= 0; shift -= 8 {
				whole = append(whole, byte(sum>>shift))
			}
			a, err := v.read(sampleKey, string(whole))
			if err == nil && form == 0 && len(a.Data)+len(a.Text)+len(a.Stack)+len(a.Trace) > len(body) {
				t.Fatalf("%d bytes have become %+v", len(body), a)
			}
			_, _ = v.read(sampleKey, body)
		}
	})
}

// Contract: S5
func FuzzReadMessage(f *testing.F) {
	inv := &onefill.Invalidation{Group: "users", Version: "1", Number: 17, Keys: []string{"42", ""}, Trace: "t"}
	f.Add(writeInvalidation(senderOf(1), inv, inv.Keys))
	f.Add(writeCanary(senderOf(1)))
	f.Fuzz(func(t *testing.T, s string) {
		m, err := readMessage(s)
		if err != nil || m.invalidation == nil {
			return
		}
		again, err := readMessage(writeInvalidation(m.sender, m.invalidation, m.invalidation.Keys))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v has become %+v, %v", m, again, err)
		}
	})
}
