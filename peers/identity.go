// What makes two spellings one process lives here: URLs in their normal form, and hints where a spelling cannot be right.

package peers

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// normaliseURL returns the one spelling of a process's URL by which it is known: lower-case scheme and host, the port always there, no path, IPv6
// addresses in their shortest form, IPv4-mapped ones as IPv4, no dot at the end of a name. The error says what is wrong with which value; it begins with
// "URL", for the caller to say whose.
func normaliseURL(raw string) (string, error) {
	u, err := parseURL(raw)
	if err != nil {
		return "", fmt.Errorf("URL %q %w", withoutUser(raw), err)
	}
	return u, nil
}

func parseURL(raw string) (string, error) {
	if raw == "" {
		return "", errors.New(`is empty: write it like "http://10.0.0.3:7946"`)
	}
	u, err := url.Parse(raw)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err // the value is named already
		}
		return "", fmt.Errorf("is malformed: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return "", errors.New(`must begin with "http://" or "https://"`)
	case u.User != nil:
		return "", errors.New("has a user, which peers do not use")
	case u.Path != "" && u.Path != "/", u.Opaque != "":
		return "", errors.New("has a path: give scheme, host and port only")
	case u.RawQuery != "", u.ForceQuery, strings.Contains(raw, "#"):
		return "", errors.New("has a query or a fragment: give scheme, host and port only")
	}
	host, err := normaliseHost(u.Hostname())
	if err != nil {
		return "", err
	}
	port, err := normalisePort(u.Scheme, u.Port())
	if err != nil {
		return "", err
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port), nil
}

func normaliseHost(host string) (string, error) {
	if host == "" {
		return "", errors.New("has no host: other processes need one to reach this one by")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		switch addr = addr.Unmap(); {
		case addr.Zone() != "":
			return "", fmt.Errorf("has the zone %q, which means nothing to other hosts", addr.Zone())
		case addr.IsUnspecified():
			return "", errors.New("has an address to listen on, not one that peers can reach")
		}
		return addr.String(), nil
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	labels := strings.Split(host, ".")
	for _, label := range labels {
		if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", fmt.Errorf("has the host %q: neither an IP address nor a name of letters, digits, '-', '_' and dots", host)
		}
	}
	if last := labels[len(labels)-1]; strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") {
		return "", fmt.Errorf("has the host %q: not an IPv4 address of four decimal numbers", host) // 127.1 and the like, read differently by different resolvers
	}
	return host, nil
}

func normalisePort(scheme, port string) (string, error) {
	if port == "" {
		return map[string]string{"http": "80", "https": "443"}[scheme], nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("has the port %q: give a number from 1 to 65535", port)
	}
	return strconv.FormatUint(n, 10), nil
}

// withoutUser hides what stands before an @, which may be a password, from error texts.
func withoutUser(raw string) string {
	if i := strings.LastIndexByte(raw, '@'); i >= 0 {
		return "…" + raw[i:]
	}
	return raw
}

// isLoopback reports whether a normalised URL can be reached from its own host alone.
func isLoopback(normalised string) bool {
	host, _ := hostPort(normalised)
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// hostPort returns the host, without brackets, and the port of a normalised URL.
func hostPort(normalised string) (host, port string) {
	_, rest, _ := strings.Cut(normalised, "://")
	host, port, _ = net.SplitHostPort(rest)
	return host, port
}

// listed returns nil if self, normalised, is among the members of a fixed list, and otherwise an error that names self and the entry that could be the same
// process spelled differently.
func listed(self string, list []Peer) error {
	for _, p := range list {
		if p.URL == self {
			return nil
		}
	}
	return fmt.Errorf("peers: self %q is not among the %d members of the fixed list%s", self, len(list), sameProcessHint(self, list))
}

// sameProcessHint names the entry of list that is likeliest to be self in another spelling, or returns "".
func sameProcessHint(self string, list []Peer) string {
	for _, s := range otherSpellings {
		for _, p := range list {
			if s.same(self, p.URL) {
				return fmt.Sprintf("; %q could be the same process (%s): spell it alike everywhere", p.URL, s.why)
			}
		}
	}
	return ""
}

// otherSpellings are the ways in which two different normalised URLs can mean one process, the likeliest first.
var otherSpellings = []struct {
	why  string
	same func(a, b string) bool
}{
	{"both are this host", func(a, b string) bool { return isLoopback(a) && isLoopback(b) && samePort(a, b) }},
	{"one has a domain, the other has not", func(a, b string) bool { return sameFirstLabel(a, b) && samePort(a, b) }},
	{"one is this host by its own name", func(a, b string) bool { return isLoopback(a) != isLoopback(b) && samePort(a, b) }},
	{"another port", sameHost},
}

func sameHost(a, b string) bool {
	hostA, _ := hostPort(a)
	hostB, _ := hostPort(b)
	return hostA == hostB
}

func samePort(a, b string) bool {
	_, portA := hostPort(a)
	_, portB := hostPort(b)
	return portA == portB
}

// sameFirstLabel reports whether one host is the other without its domain.
func sameFirstLabel(a, b string) bool {
	hostA, _ := hostPort(a)
	hostB, _ := hostPort(b)
	return strings.HasPrefix(hostA, hostB+".") || strings.HasPrefix(hostB, hostA+".")
}
