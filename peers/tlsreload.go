// Certificates that change on disk while the process runs live here.

package peers

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// reloadEvery is how long files are trusted not to have changed: a handshake looks at them at most once in that time.
const reloadEvery = time.Second

// ReloadTLS returns a config for Config.TLS that shows the certificate in certFile with the key in keyFile, and trusts the authorities in caFile, as these
// PEM files are at each handshake: a certificate or an authority that is replaced on disk counts within a second for new connections, without a restart.
// Connections that stand are left alone. Files that cannot be read or do not fit together, while one of them is being replaced say, leave the last good
// ones in use and are logged once through slog's default logger.
//
// To replace an authority without a refused connection, let caFile hold the old and the new one while certificates of both are in use. The certificate
// must allow both server and client authentication. Set ServerName on the config if all peers share one name; see Config.TLS.
//
// The config is for pools: outside one, the authorities hold for incoming connections only. The error names the file that cannot be used.
func ReloadTLS(certFile, keyFile, caFile string) (*tls.Config, error) {
	r := &reloader{files: [3]string{certFile, keyFile, caFile}}
	if err := r.load(); err != nil {
		return nil, err
	}
	r.checked = time.Now()
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.now().certificate, nil },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return r.now().certificate, nil },
		GetConfigForClient:   func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.now().config(), nil },
	}, nil
}

// reloader holds what three files last said.
type reloader struct {
	files [3]string // certificate, key, authorities

	mu      sync.Mutex // guards all below; held while the files are read, so that one handshake reads for all
	checked time.Time
	seen    [3]os.FileInfo // the files as they were just before they were last read with success
	logged  string         // the last failure, so as to log it once
	good    identity
}

// identity is what one good reading of the files gives.
type identity struct {
	certificate *tls.Certificate
	authorities *x509.CertPool
}

func (i identity) config() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{*i.certificate},
		ClientCAs:    i.authorities,
		ClientAuth:   tls.RequireAndVerifyClientCert,
	}
}

// now returns the last good identity, after a look at the files if the last one was long enough ago.
func (r *reloader) now() identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.checked) < reloadEvery {
		return r.good
	}
	r.checked = time.Now()
	err := r.load()
	if err == nil {
		r.logged = ""
	} else if err.Error() != r.logged {
		r.logged = err.Error()
		slog.Warn("peers: certificates on disk cannot be used, the last good ones stay", "error", err)
	}
	return r.good
}

// load reads the files if any of them is not as it was when they were last good. It needs mu, except before the reloader is shared.
func (r *reloader) load() error {
	var seen [3]os.FileInfo
	changed := false
	for i, name := range r.files {
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("peers: ReloadTLS: %w", err)
		}
		seen[i] = info
		changed = changed || !sameFile(info, r.seen[i])
	}
	if !changed {
		return nil
	}
	read, err := readIdentity(r.files)
	if err != nil {
		return err
	}
	r.good, r.seen = read, seen
	return nil
}

// sameFile reports whether b is a as far as can be told without reading it.
func sameFile(a, b os.FileInfo) bool {
	return b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

func readIdentity(files [3]string) (identity, error) {
	certificate, err := tls.LoadX509KeyPair(files[0], files[1])
	if err != nil {
		return identity{}, fmt.Errorf("peers: ReloadTLS: certificate %q with key %q: %w", files[0], files[1], err)
	}
	pem, err := os.ReadFile(files[2])
	if err != nil {
		return identity{}, fmt.Errorf("peers: ReloadTLS: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return identity{}, fmt.Errorf("peers: ReloadTLS: authorities %q: no certificate in it", files[2])
	}
	return identity{certificate: &certificate, authorities: authorities}, nil
}
