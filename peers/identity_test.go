// Tests of spellings: which are one process, which are wrong.

package peers

import (
	"strings"
	"testing"
)

// Contract: P6
func TestSpellingsOfOneURLBecomeOne(t *testing.T) {
	for raw, want := range map[string]string{
		"http://10.0.0.3:7946":             "http://10.0.0.3:7946",
		"HTTP://10.0.0.3:7946/":            "http://10.0.0.3:7946",
		"http://10.0.0.3:07946":            "http://10.0.0.3:7946",
		"http://[::ffff:10.0.0.3]:7946":    "http://10.0.0.3:7946",
		"http://Users-0.Example.COM.:7946": "http://users-0.example.com:7946",
		"http://node_1":                    "http://node_1:80",
		"https://node":                     "https://node:443",
		"https://node:/":                   "https://node:443",
		"https://[2001:DB8:0:0::1]:7946":   "https://[2001:db8::1]:7946",
		"https://[::1]":                    "https://[::1]:443",
	} {
		got, err := normaliseURL(raw)
		if err != nil || got != want {
			t.Errorf("%q became %q, %v; want %q", raw, got, err, want)
		}
		if again, err := normaliseURL(got); again != got || err != nil {
			t.Errorf("%q is not in its normal form: %q, %v", got, again, err)
		}
	}
}

func TestMalformedURLIsNamedWithWhatIsWrong(t *testing.T) {
	for raw, why := range map[string]string{
		"":                            "empty",
		"10.0.0.3:7946":               "malformed",
		"node:7946":                   "must begin with",
		"//node:7946":                 "must begin with",
		"ftp://node:7946":             "must begin with",
		"http:node:7946":              "path",
		"http://":                     "no host",
		"http://:7946":                "no host",
		"http://node:0":               `port "0"`,
		"http://node:65536":           `port "65536"`,
		"http://node:http":            "malformed",
		"http://node:7946/cache":      "path",
		"http://node:7946//":          "path",
		"http://node:7946?":           "query",
		"http://node:7946?a=b":        "query",
		"http://node:7946#":           "fragment",
		"http://me:hunter2@node:7946": "user",
		"http://me:hunt er2@node":     "malformed",
		"http://0.0.0.0:7946":         "listen on",
		"http://[::]:7946":            "listen on",
		"http://[fe80::1%25eth0]:80":  "zone",
		"http://127.1:7946":           "four decimal",
		"http://010.0.0.1:7946":       "four decimal",
		"http://0x7f000001:7946":      "four decimal",
		"http://a..b:7946":            "name of letters",
		"http://nöde:7946":            "name of letters",
		"http://no de:7946":           "malformed",
		"http://node:7946\n":          "malformed",
		"http://[::1:7946":            "malformed",
	} {
		got, err := normaliseURL(raw)
		switch {
		case err == nil:
			t.Errorf("%q became %q; want an error about %q", raw, got, why)
		case !strings.Contains(err.Error(), why):
			t.Errorf("%q is said to be wrong because: %v; want %q", raw, err, why)
		case strings.Contains(err.Error(), "hunt"):
			t.Errorf("the error shows a password: %v", err)
		}
	}
}

// Contract: S1
func TestLoopbackIsToldFromAddressesThatOthersReach(t *testing.T) {
	for raw, want := range map[string]bool{
		"http://localhost": true, "http://LOCALHOST.:1": true, "http://127.0.0.1": true, "http://127.9.9.9": true, "http://[::1]": true, "http://[::ffff:127.0.0.1]": true,
		"http://10.0.0.3": false, "http://localhost.example": false, "http://127.0.0.1.example": false, "http://evil.localhost": false, "http://[::2]": false,
	} {
		u, err := normaliseURL(raw)
		if err != nil || isLoopback(u) != want {
			t.Errorf("%s: loopback %v, %v", raw, isLoopback(u), err)
		}
	}
}

func FuzzNormalisedURLStaysAsItIs(f *testing.F) {
	for _, seed := range []string{"http://10.0.0.3:7946", "https://[2001:DB8::1]:7946/", "HTTP://Node.:80", "http://[::ffff:1.2.3.4]", "http://a%62:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		once, err := normaliseURL(raw)
		if err != nil {
			return
		}
		if twice, err := normaliseURL(once); err != nil || twice != once {
			t.Errorf("%q became %q, then %q, %v", raw, once, twice, err)
		}
		if host, port := hostPort(once); host == "" || port == "" {
			t.Errorf("%q has host %q and port %q", once, host, port)
		}
	})
}
