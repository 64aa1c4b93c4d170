// Tests of TLS from certificates that an authority issued: names, ends of validity, what a config may not say.

package peers

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// issuer is an authority of a test's own.
type issuer struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	_, key, _ := ed25519.GenerateKey(rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{cert, key}
}

func (i *issuer) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(i.cert)
	return pool
}

func (i *issuer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.cert.Raw})
}

// issue returns a certificate for these names and addresses, valid from an hour ago for this long from now.
func (i *issuer) issue(t *testing.T, valid time.Duration, names ...string) tls.Certificate {
	t.Helper()
	public, private, _ := ed25519.GenerateKey(rand.Reader)
	template := &x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(valid), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.cert, public, i.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

// config is what a user would write for a process with this certificate.
func (i *issuer) config(cert tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: i.pool()}
}

func configEnds(t *testing.T, cfg *tls.Config, names ...string) (server, client *tls.Config) {
	t.Helper()
	server, client, err := tlsFromConfig(cfg, func() []string { return names })
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}

// Contract: S2
func TestPeersVerifyEachOthersNames(t *testing.T) {
	ca := newIssuer(t)
	a, b := ca.config(ca.issue(t, time.Hour, "a.test", "10.0.0.1", "2001:db8::1")), ca.config(ca.issue(t, time.Hour, "b.test", "10.0.0.2"))
	server, _ := configEnds(t, a, "a.test", "b.test")
	_, client := configEnds(t, b)
	for _, addr := range []string{"a.test:7946", "10.0.0.1:7946", "[2001:db8::1]:7946"} {
		if serverErr, clientErr := meet(server, client, addr); serverErr != nil || clientErr != nil {
			t.Errorf("%s: %v, %v", addr, serverErr, clientErr)
		}
	}
	for _, addr := range []string{"c.test:7946", "10.0.0.9:7946"} {
		host, _, _ := net.SplitHostPort(addr)
		if _, err := meet(server, client, addr); err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "not "+host) {
			t.Errorf("the dialling end met a.test at %s: %v", addr, err)
		}
	}
	server, _ = configEnds(t, a, "a.test", "c.test", "10.0.0.9")
	serverErr, clientErr := meet(server, client, "a.test:7946")
	if serverErr == nil || !strings.Contains(serverErr.Error(), `"b.test, 10.0.0.2"`) {
		t.Errorf("the dialled end met b.test, which is no member: %v", serverErr)
	}
	if clientErr == nil || !strings.Contains(clientErr.Error(), "refuses this process") {
		t.Errorf("b.test was refused with %v", clientErr)
	}
}

// Contract: S2
func TestServerNameStandsForTheNameOfEveryPeer(t *testing.T) {
	ca := newIssuer(t)
	member, other := ca.config(ca.issue(t, time.Hour, "users.svc")), ca.config(ca.issue(t, time.Hour, "orders.svc"))
	member.ServerName, other.ServerName = "users.svc", "users.svc"
	server, client := configEnds(t, member, "10.0.0.1")
	if serverErr, clientErr := meet(server, client, "10.0.0.1:7946"); serverErr != nil || clientErr != nil {
		t.Errorf("%v, %v", serverErr, clientErr)
	}
	otherServer, otherClient := configEnds(t, other)
	if serverErr, _ := meet(server, otherClient, "10.0.0.1:7946"); serverErr == nil || !strings.Contains(serverErr.Error(), "orders.svc") {
		t.Errorf("orders.svc dialled: %v", serverErr)
	}
	if _, clientErr := meet(otherServer, client, "10.0.0.1:7946"); clientErr == nil || !strings.Contains(clientErr.Error(), "orders.svc") {
		t.Errorf("orders.svc was dialled: %v", clientErr)
	}
}

// Contract: S2
func TestStrangersCertificateIsRefusedByEitherEnd(t *testing.T) {
	ca, stranger := newIssuer(t), newIssuer(t)
	own, theirs := ca.config(ca.issue(t, time.Hour, "a.test")), ca.config(stranger.issue(t, time.Hour, "a.test"))
	server, client := configEnds(t, own, "a.test")
	theirServer, theirClient := configEnds(t, theirs, "a.test")
	if serverErr, _ := meet(server, theirClient, "a.test:1"); serverErr == nil || !strings.Contains(serverErr.Error(), "unknown authority") {
		t.Errorf("a stranger dialled: %v", serverErr)
	}
	if _, clientErr := meet(theirServer, client, "a.test:1"); clientErr == nil || !strings.Contains(clientErr.Error(), "unknown authority") {
		t.Errorf("a stranger was dialled: %v", clientErr)
	}
	client.Certificates = nil
	if serverErr, _ := meet(server, client, "a.test:1"); serverErr == nil {
		t.Error("a client without a certificate was let in")
	}
}

// Contract: S2
func TestExpiredCertificateIsRefusedByEitherEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newIssuer(t)
		short, long := ca.config(ca.issue(t, time.Hour, "a.test")), ca.config(ca.issue(t, 24*time.Hour, "a.test"))
		shortServer, shortClient := configEnds(t, short, "a.test")
		longServer, longClient := configEnds(t, long, "a.test")
		if serverErr, clientErr := meet(shortServer, longClient, "a.test:1"); serverErr != nil || clientErr != nil {
			t.Fatalf("before the end: %v, %v", serverErr, clientErr)
		}
		time.Sleep(2 * time.Hour)
		if _, clientErr := meet(shortServer, longClient, "a.test:1"); clientErr == nil || !strings.Contains(clientErr.Error(), "expired") {
			t.Errorf("it was dialled: %v", clientErr)
		}
		if serverErr, _ := meet(longServer, shortClient, "a.test:1"); serverErr == nil || !strings.Contains(serverErr.Error(), "expired") {
			t.Errorf("it dialled: %v", serverErr)
		}
	})
}

// A config as go-spiffe makes it skips the standard verification for its own.
func TestOwnVerificationTakesThePlaceOfNames(t *testing.T) {
	ca := newIssuer(t)
	accept := true
	cfg := &tls.Config{
		Certificates: []tls.Certificate{ca.issue(t, time.Hour)}, InsecureSkipVerify: true,
		VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error {
			if !accept {
				return io.ErrUnexpectedEOF
			}
			return nil
		},
	}
	server, client := configEnds(t, cfg, "a.test")
	if serverErr, clientErr := meet(server, client, "10.0.0.1:1"); serverErr != nil || clientErr != nil {
		t.Errorf("%v, %v", serverErr, clientErr)
	}
	accept = false
	if serverErr, clientErr := meet(server, client, "10.0.0.1:1"); serverErr == nil || clientErr == nil {
		t.Errorf("refused by its own verification: %v, %v", serverErr, clientErr)
	}
	noCertificate := client.Clone()
	noCertificate.Certificates, noCertificate.VerifyPeerCertificate = nil, nil
	if serverErr, _ := meet(server, noCertificate, "10.0.0.1:1"); serverErr == nil {
		t.Error("a client without a certificate was let in")
	}
}

// Contract: S1, S2
func TestConfigThatLetsStrangersInIsRefused(t *testing.T) {
	cert := newIssuer(t).issue(t, time.Hour, "a.test")
	for want, cfg := range map[string]*tls.Config{
		"InsecureSkipVerify":                    {Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true},
		"Config.TLS.MinVersion is TLS 1.1":      {Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS11},
		"Config.TLS.MaxVersion is TLS 1.0":      {Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS10},
		"no certificate to show to those who":   {},
		"no certificate to show to those it di": {GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert, nil }},
	} {
		if _, _, err := tlsFromConfig(cfg, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// Contract: S2
func TestAuthoritiesOfOneDirectionServeBoth(t *testing.T) {
	ca := newIssuer(t)
	cert := ca.issue(t, time.Hour, "a.test")
	for what, cfg := range map[string]*tls.Config{
		"RootCAs":   {Certificates: []tls.Certificate{cert}, RootCAs: ca.pool()},
		"ClientCAs": {Certificates: []tls.Certificate{cert}, ClientCAs: ca.pool()},
	} {
		server, client := configEnds(t, cfg, "a.test")
		if serverErr, clientErr := meet(server, client, "a.test:1"); serverErr != nil || clientErr != nil {
			t.Errorf("%s alone: %v, %v", what, serverErr, clientErr)
		}
	}
}

// Contract: S2
func TestUsersVerificationHoldsBesideNames(t *testing.T) {
	ca := newIssuer(t)
	cfg := ca.config(ca.issue(t, time.Hour, "a.test"))
	_, client := configEnds(t, cfg, "a.test")
	cfg.VerifyConnection = func(tls.ConnectionState) error { return io.ErrUnexpectedEOF }
	server, _ := configEnds(t, cfg, "a.test")
	if serverErr, _ := meet(server, client, "a.test:1"); serverErr == nil {
		t.Error("what the user's VerifyConnection refused was let in")
	}
}

// A resumed session would skip what was verified when it began.
//
// Contract: S2
func TestNoSessionIsResumed(t *testing.T) {
	ca := newIssuer(t)
	secretServer, secretClient := secretEnds(t, oldSecret)
	configServer, configClient := configEnds(t, ca.config(ca.issue(t, time.Hour, "a.test")), "a.test")
	for what, ends := range map[string][2]*tls.Config{"secrets": {secretServer, secretClient}, "certificates": {configServer, configClient}} {
		client := ends[1].Clone()
		client.ClientSessionCache = tls.NewLRUClientSessionCache(8)
		resumed := false
		client.VerifyConnection = func(s tls.ConnectionState) error { resumed = resumed || s.DidResume; return nil }
		for range 3 {
			if serverErr, clientErr := meet(ends[0], client, "a.test:1"); serverErr != nil || clientErr != nil {
				t.Fatalf("%s: %v, %v", what, serverErr, clientErr)
			}
		}
		if resumed {
			t.Errorf("%s: a session was resumed", what)
		}
	}
}

func TestOldVersionsOfTLSAreNotSpoken(t *testing.T) {
	ca := newIssuer(t)
	server, client := configEnds(t, ca.config(ca.issue(t, time.Hour, "a.test")), "a.test")
	if server.MinVersion != tls.VersionTLS12 || client.MinVersion != tls.VersionTLS12 {
		t.Errorf("the least versions are %x and %x", server.MinVersion, client.MinVersion)
	}
}

func TestUsersConfigIsLeftAsItWas(t *testing.T) {
	ca := newIssuer(t)
	cfg := ca.config(ca.issue(t, time.Hour, "a.test"))
	configEnds(t, cfg, "a.test")
	if cfg.NextProtos != nil || cfg.MinVersion != 0 || cfg.ClientCAs != nil || cfg.ClientAuth != tls.NoClientCert || cfg.VerifyConnection != nil {
		t.Errorf("it became %+v", cfg)
	}
}
