// TLS between peers lives here: both ends from a tls.Config of the user's, and the dialling that all of it shares. Certificates that are read anew from
// files are in tlsreload.go, those from a shared secret in secret.go.

package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// protocols are what peers speak over TLS, the preferred one first. Each config gets its own copy.
func protocols() []string { return []string{"h2", "http/1.1"} }

// tlsFromConfig returns both ends of TLS between peers from Config.TLS. Each end shows a certificate and verifies the other's: its chain, against RootCAs
// and ClientCAs (each stands in for the other where one is nil; the system's where both are), and its name.
//
// With ServerName set, every peer must have that name: set it where all processes have one certificate for the service. Without, the dialled end must
// have the host of its URL as a name, and the dialling end any name that names returns when it connects: the hosts of the pool's members and this
// process's own. A process that the member list does not show yet is refused until it does. Nil names leaves the dialling end's name unchecked.
//
// A config that skips verification is refused unless it brings its own (VerifyConnection or VerifyPeerCertificate, as SPIFFE's do): then names
// are its business.
func tlsFromConfig(cfg *tls.Config, names func() []string) (server, client *tls.Config, err error) {
	ownVerification := cfg.VerifyConnection != nil || cfg.VerifyPeerCertificate != nil
	switch {
	case cfg.MinVersion != 0 && cfg.MinVersion < tls.VersionTLS12:
		return nil, nil, fmt.Errorf("peers: Config.TLS.MinVersion is %s: peers speak TLS 1.2 or later", tls.VersionName(cfg.MinVersion))
	case cfg.MaxVersion != 0 && cfg.MaxVersion < tls.VersionTLS12:
		return nil, nil, fmt.Errorf("peers: Config.TLS.MaxVersion is %s: peers speak TLS 1.2 or later", tls.VersionName(cfg.MaxVersion))
	case cfg.InsecureSkipVerify && !ownVerification:
		return nil, nil, errors.New("peers: Config.TLS.InsecureSkipVerify is set without VerifyConnection or VerifyPeerCertificate: peers must know each other")
	case len(cfg.Certificates) == 0 && cfg.GetCertificate == nil && cfg.GetConfigForClient == nil:
		return nil, nil, errors.New("peers: Config.TLS has no certificate to show to those who dial: set Certificates or GetCertificate")
	case len(cfg.Certificates) == 0 && cfg.GetClientCertificate == nil:
		return nil, nil, errors.New("peers: Config.TLS has no certificate to show to those it dials: set Certificates or GetClientCertificate")
	}
	client = cfg.Clone()
	client.NextProtos = protocols()
	client.MinVersion = max(client.MinVersion, tls.VersionTLS12)
	if client.RootCAs == nil {
		client.RootCAs = cfg.ClientCAs
	}
	harden := func(c *tls.Config) *tls.Config { return serverSide(c, cfg, names) }
	server = harden(cfg)
	if choose := cfg.GetConfigForClient; choose != nil {
		server.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if chosen == nil || err != nil {
				return nil, err
			}
			return harden(chosen), nil
		}
	}
	return server, client, nil
}

// serverSide returns c, which is cfg or what cfg chose for one connection, as the dialled end of tlsFromConfig.
func serverSide(c, cfg *tls.Config, names func() []string) *tls.Config {
	s := c.Clone()
	s.GetConfigForClient = nil
	s.NextProtos = protocols()
	s.MinVersion = max(s.MinVersion, tls.VersionTLS12)
	s.SessionTicketsDisabled = true // a resumed session would outlive the certificate and the authority that it was verified with
	if s.ClientCAs == nil {
		s.ClientCAs = s.RootCAs
	}
	if cfg.InsecureSkipVerify {
		s.ClientAuth = tls.RequireAnyClientCert // its own verification follows
		return s
	}
	s.ClientAuth = tls.RequireAndVerifyClientCert
	if cfg.ServerName != "" {
		names = func() []string { return []string{cfg.ServerName} }
	}
	if names == nil {
		return s
	}
	verify := s.VerifyConnection
	s.VerifyConnection = func(state tls.ConnectionState) error {
		if verify != nil {
			if err := verify(state); err != nil {
				return err
			}
		}
		return hasOneName(state.PeerCertificates[0], names())
	}
	return s
}

// hasOneName returns an error that lists the certificate's names unless one of the wanted is among them.
func hasOneName(cert *x509.Certificate, wanted []string) error {
	if slices.ContainsFunc(wanted, func(name string) bool { return cert.VerifyHostname(name) == nil }) {
		return nil
	}
	has := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		has = append(has, ip.String())
	}
	return fmt.Errorf("peers: the client's certificate is for %q, and no peer has such a name", strings.Join(has, ", "))
}

// tlsDialer returns a DialTLSContext for an http.Transport: dial, then TLS as client says, with the address's host as the name to verify unless client has
// one. A config that chooses authorities for each connection by GetConfigForClient, and has no RootCAs, chooses them for this direction too.
// The error names the address; explainTLS tells what it means.
func tlsDialer(dial func(ctx context.Context, network, addr string) (net.Conn, error), client *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		cfg, err := clientFor(addr, client)
		if err != nil {
			return nil, err
		}
		plain, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(plain, cfg)
		if err := conn.HandshakeContext(ctx); err != nil {
			plain.Close()
			return nil, fmt.Errorf("peers: TLS with %s: %w", addr, err)
		}
		return conn, nil
	}
}

// clientFor returns client's config for one connection to addr.
func clientFor(addr string, client *tls.Config) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("peers: address %q: %w", addr, err)
	}
	cfg := client.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	if cfg.RootCAs == nil && cfg.GetConfigForClient != nil {
		chosen, err := cfg.GetConfigForClient(&tls.ClientHelloInfo{ServerName: host})
		if err != nil {
			return nil, fmt.Errorf("peers: Config.TLS.GetConfigForClient: %w", err)
		}
		if chosen != nil {
			cfg.RootCAs = chosen.ClientCAs
		}
	}
	return cfg, nil
}

// explainTLS adds the likely cause to an error of tlsDialer, or of the first read after it: in TLS 1.3 that is where a client learns that its own
// certificate was refused. (HTTP/2 as net/http speaks it loses that error; over HTTP/1.1 it arrives.)
func explainTLS(err error) error {
	var unknown x509.UnknownAuthorityError
	var remote *net.OpError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("peers: the other end's certificate comes from none of this process's secrets or authorities: %w", err)
	case errors.As(err, &remote) && remote.Op == "remote error":
		return fmt.Errorf("peers: the other end refuses this process's certificate (another secret or authority, or no name that it expects): %w", err)
	case errors.As(err, &plain):
		return fmt.Errorf("peers: the other end does not speak TLS: %w", err)
	}
	return err
}
