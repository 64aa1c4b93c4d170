// Tests of certificates that change on disk.

package peers

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// onDisk is a directory with a certificate, its key and authorities.
type onDisk struct{ cert, key, ca string }

func newOnDisk(t *testing.T) onDisk {
	dir := t.TempDir()
	return onDisk{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "ca.crt")}
}

func (d onDisk) write(t *testing.T, cert tls.Certificate, authorities ...*issuer) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	var ca []byte
	for _, a := range authorities {
		ca = append(ca, a.pem()...)
	}
	replace(t, d.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
	replace(t, d.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	replace(t, d.ca, ca)
}

// replace puts a new file in the place of name, as tools that renew certificates do.
func replace(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func (d onDisk) ends(t *testing.T, names ...string) (server, client *tls.Config) {
	t.Helper()
	cfg, err := ReloadTLS(d.cert, d.key, d.ca)
	if err != nil {
		t.Fatal(err)
	}
	return configEnds(t, cfg, names...)
}

// Contract: S2, O3
func TestReplacedCertificateAndAuthorityCountWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newIssuer(t), newIssuer(t)
		a, b := newOnDisk(t), newOnDisk(t)
		a.write(t, first.issue(t, time.Hour, "a.test"), first)
		b.write(t, first.issue(t, time.Hour, "10.0.0.2"), first)
		names := []string{"a.test", "10.0.0.2"}
		aServer, aClient := a.ends(t, names...)
		bServer, bClient := b.ends(t, names...)
		both := func(step string) {
			if serverErr, clientErr := meet(aServer, bClient, "a.test:1"); serverErr != nil || clientErr != nil {
				t.Errorf("%s, b dials a: %v, %v", step, serverErr, clientErr)
			}
			if serverErr, clientErr := meet(bServer, aClient, "10.0.0.2:1"); serverErr != nil || clientErr != nil {
				t.Errorf("%s, a dials b: %v, %v", step, serverErr, clientErr)
			}
		}
		both("at first")
		for _, step := range []struct {
			what string
			do   func()
		}{
			{"a trusts both", func() { a.write(t, first.issue(t, time.Hour, "a.test"), first, second) }},
			{"b trusts both", func() { b.write(t, first.issue(t, time.Hour, "10.0.0.2"), second, first) }},
			{"a is from the second", func() { a.write(t, second.issue(t, 9*time.Hour, "a.test"), first, second) }},
			{"b is from the second, and trusts it alone", func() { b.write(t, second.issue(t, 9*time.Hour, "10.0.0.2"), second) }},
			{"a trusts the second alone", func() { a.write(t, second.issue(t, 9*time.Hour, "a.test"), second) }},
		} {
			step.do()
			time.Sleep(reloadEvery)
			both(step.what)
		}
		strangers, _ := a.ends(t, "c.test")
		if serverErr, _ := meet(strangers, bClient, "a.test:1"); serverErr == nil || !strings.Contains(serverErr.Error(), "10.0.0.2") {
			t.Errorf("b dials a pool in which it is no member: %v", serverErr)
		}
		time.Sleep(5 * time.Hour)
		both("after the first certificates' end")
		b.write(t, first.issue(t, time.Hour, "10.0.0.2"), second)
		time.Sleep(reloadEvery)
		if serverErr, _ := meet(aServer, bClient, "a.test:1"); serverErr == nil {
			t.Error("the dropped authority still counts for those who dial")
		}
		if _, clientErr := meet(bServer, aClient, "10.0.0.2:1"); clientErr == nil {
			t.Error("the dropped authority still counts for those who are dialled")
		}
	})
}

func TestBrokenFilesLeaveTheLastGoodOnesInUse(t *testing.T) {
	var logged bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		ca := newIssuer(t)
		d := newOnDisk(t)
		d.write(t, ca.issue(t, time.Hour, "a.test"), ca)
		server, client := d.ends(t, "a.test")
		good := map[string][]byte{}
		for _, name := range []string{d.cert, d.key, d.ca} {
			good[name], _ = os.ReadFile(name)
		}
		for name, content := range good {
			for what, breakIt := range map[string]func(){
				"empty":   func() { replace(t, name, nil) },
				"missing": func() { os.Remove(name) },
				"another's": func() {
					other := newOnDisk(t)
					other.write(t, ca.issue(t, time.Hour, "other.test"))
					foreign, _ := os.ReadFile(map[string]string{d.cert: other.cert, d.key: other.key, d.ca: other.key}[name])
					replace(t, name, foreign)
				},
			} {
				logged.Reset()
				breakIt()
				for range 3 {
					time.Sleep(reloadEvery)
					if serverErr, clientErr := meet(server, client, "a.test:1"); serverErr != nil || clientErr != nil {
						t.Errorf("%s is %s: %v, %v", filepath.Base(name), what, serverErr, clientErr)
					}
				}
				if n := strings.Count(logged.String(), "last good"); n != 1 || !strings.Contains(logged.String(), filepath.Base(name)) {
					t.Errorf("%s is %s: logged %d times: %s", filepath.Base(name), what, n, logged.String())
				}
				replace(t, name, content)
				time.Sleep(reloadEvery)
				meet(server, client, "a.test:1")
			}
		}
		d.write(t, ca.issue(t, 9*time.Hour, "a.test"), ca)
		time.Sleep(2 * time.Hour)
		if serverErr, clientErr := meet(server, client, "a.test:1"); serverErr != nil || clientErr != nil {
			t.Errorf("after the repair: %v, %v", serverErr, clientErr)
		}
	})
}

func TestFilesThatCannotBeUsedAtTheStartAreNamed(t *testing.T) {
	ca := newIssuer(t)
	d := newOnDisk(t)
	d.write(t, ca.issue(t, time.Hour, "a.test"), ca)
	for _, name := range []string{d.cert, d.key, d.ca} {
		content, _ := os.ReadFile(name)
		for _, breakIt := range []func(){func() { replace(t, name, []byte("nothing")) }, func() { os.Remove(name) }} {
			breakIt()
			if _, err := ReloadTLS(d.cert, d.key, d.ca); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", filepath.Base(name), err)
			}
		}
		replace(t, name, content)
	}
}

func TestFilesAreLookedAtOnceASecondAndReadOnlyIfTheyChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newIssuer(t)
		d := newOnDisk(t)
		d.write(t, ca.issue(t, time.Hour, "a.test"), ca)
		cfg, err := ReloadTLS(d.cert, d.key, d.ca)
		if err != nil {
			t.Fatal(err)
		}
		first, _ := cfg.GetCertificate(nil)
		time.Sleep(time.Minute)
		if again, _ := cfg.GetCertificate(nil); again != first {
			t.Error("the certificate was read again")
		}
		d.write(t, ca.issue(t, time.Hour, "a.test"), ca)
		time.Sleep(reloadEvery / 2)
		if again, _ := cfg.GetCertificate(nil); again != first {
			t.Error("the files were looked at again within a second")
		}
	})
}
