// TLS from a shared secret lives here: whoever knows the secret is a member. TLS from certificates that others issue is in tls.go.

package peers

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	// minSecret is the least length of a secret in bytes. A member shows its certificate to whoever connects, so a secret that can be guessed can be
	// tried out at leisure: it must be random, not a pass phrase.
	minSecret = 16
	// secretName is the name in every certificate that comes from a secret. It identifies nobody: to hold such a certificate is to know the secret.
	secretName = "onefill.internal"
	// secretInfo is what the authority's key is derived for. Processes agree only if they derive alike; another derivation needs another version here.
	secretInfo = "onefill peers authority, version 1"
)

// Certificates from secrets are always valid, and are always judged as of the same moment: a wrong clock keeps no process out. What ends their use is
// that the secret is dropped.
var (
	secretNotBefore = time.Unix(0, 0).UTC()
	secretNotAfter  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	secretTime      = func() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }
)

// tlsFromSecrets returns both ends of TLS 1.3 between processes that share a secret. From each secret an Ed25519 authority is derived; the first one's
// signs a certificate for this process, made anew at each start, and any of them verifies others. A secret is therefore changed in three rolling deploys
// without a refused connection: [old] to [old, new], to [new, old], to [new].
//
// Errors name the secret by its place in Config.Secrets and never show it.
func tlsFromSecrets(secrets []string) (server, client *tls.Config, err error) {
	if len(secrets) == 0 {
		return nil, nil, errors.New("peers: Config.Secrets is empty")
	}
	var own tls.Certificate
	authorities := x509.NewCertPool()
	for i, secret := range secrets {
		if len(secret) < minSecret {
			return nil, nil, fmt.Errorf("peers: Config.Secrets[%d] has %d bytes: a secret has at least %d, at random", i, len(secret), minSecret)
		}
		authority, key, err := authorityFrom(secret)
		if err != nil {
			return nil, nil, fmt.Errorf("peers: Config.Secrets[%d]: no authority can be derived: %w", i, err)
		}
		authorities.AddCert(authority)
		if i == 0 {
			if own, err = issue(authority, key); err != nil {
				return nil, nil, fmt.Errorf("peers: Config.Secrets[0]: no certificate can be issued: %w", err)
			}
		}
	}
	both := &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{own},
		RootCAs:      authorities,
		ClientCAs:    authorities,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ServerName:   secretName,
		NextProtos:   protocols(),
		Time:         secretTime,
		// With a clock that stands, tickets would live and their keys stay for as long as the process. Connections live long too; a handshake can be afforded.
		SessionTicketsDisabled: true,
	}
	return both.Clone(), both, nil
}

// authorityFrom derives the authority that every process with this secret derives: the same key and the same certificate, to the byte.
func authorityFrom(secret string) (*x509.Certificate, ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, []byte(secret), nil, secretInfo, ed25519.SeedSize)
	if err != nil {
		return nil, nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "onefill pool"},
		NotBefore:             secretNotBefore,
		NotAfter:              secretNotAfter,
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

// issue makes a key and a certificate for this process.
func issue(authority *x509.Certificate, authorityKey ed25519.PrivateKey) (tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		// No SerialNumber: one is drawn at random.
		DNSNames:    []string{secretName},
		NotBefore:   secretNotBefore,
		NotAfter:    secretNotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, public, authorityKey)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}, err
}
