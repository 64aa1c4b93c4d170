// Members found by DNS live here.

package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// resolveEvery is the mean pause between look-ups, spread by a tenth so that the processes of a pool do not ask in step. Go's resolver does not show
	// the records' TTL, and the servers and caches in between keep to it anyway: asking them more often than it is cheap.
	resolveEvery = 5 * time.Second
	// resolveFirst takes its place until the first look-up has succeeded: Ready waits for it.
	resolveFirst = 500 * time.Millisecond
	// resolveTimeout bounds one look-up.
	resolveTimeout = 5 * time.Second
)

// DNS is a source of members that a name stands for.
//
// "users.prod.svc:7946" is resolved to its addresses: each is a member, at that port. Of a host with both an IPv4 and an IPv6 address only one counts, or it
// would be two members: where the name has addresses of both kinds, those of the kind in this process's own URL count, IPv4 if that URL holds a host name.
// So all processes of a pool should have URLs of one kind, and hosts that share no kind need SRV records.
//
// "_onefill._tcp.users.prod.svc", or any name without a port, is resolved to its SRV records: each target is a member by its host name and port, whatever
// addresses it has; priorities and weights do not matter. This process's own URL must then hold that name too.
//
// Members have the scheme that the pool speaks, and their URL as ID. The name is resolved anew every 5 s or so. A look-up that fails, or that finds nothing
// once there were members, changes nothing but is reported; the very first one that finds nothing means that this process is alone. NewPool refuses a
// malformed name.
func DNS(name string) Source {
	d := &dnsSource{name: name, resolver: &net.Resolver{StrictErrors: true}} // strict: half an answer would drop members that live
	d.host, d.port, d.malformed = parseDNSName(name)
	d.here.report = func(error) {}
	return d
}

type dnsSource struct {
	name       string // as the caller wrote it
	host, port string // port is empty for SRV
	malformed  error
	resolver   resolver
	here       surroundings
}

// resolver is what DNS needs of a *net.Resolver.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

func parseDNSName(name string) (host, port string, err error) {
	host = name
	if strings.Contains(name, ":") {
		if host, port, err = net.SplitHostPort(name); err != nil || strings.Contains(name, "/") {
			return "", "", fmt.Errorf(`peers: DNS(%q): give "name:port" without a scheme or a path, or the name of SRV records`, name)
		}
		if port, err = normalisePort("", port); err != nil || port == "" {
			return "", "", fmt.Errorf("peers: DNS(%q): the port is not a number from 1 to 65535", name)
		}
		if strings.HasPrefix(host, "_") {
			return "", "", fmt.Errorf("peers: DNS(%q): SRV records have ports of their own: leave out the port", name)
		}
	}
	if _, err := netip.ParseAddr(host); err == nil && port == "" {
		return "", "", fmt.Errorf("peers: DNS(%q): an address needs a port", name)
	}
	if _, err := normaliseHost(strings.TrimSuffix(host, ".")); err != nil {
		return "", "", fmt.Errorf("peers: DNS(%q): the name %w", name, err)
	}
	return host, port, nil
}

func (d *dnsSource) addressesOnly() {}

func (d *dnsSource) bind(here surroundings) (Source, error) {
	bound := *d
	bound.here = here
	return &bound, d.malformed
}

func (d *dnsSource) Watch(ctx context.Context, set func([]Peer)) error {
	if d.malformed != nil {
		return d.malformed
	}
	var last []Peer
	known := false
	for {
		found, err := d.lookUp(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			d.here.report(fmt.Errorf("peers: DNS(%q) failed, the last %d members stay: %w", d.name, len(last), err))
		case len(found) == 0 && len(last) > 0:
			d.here.report(fmt.Errorf("peers: DNS(%q) finds no members any more, the last %d stay", d.name, len(last)))
		case !known || !slices.Equal(found, last):
			known, last = true, found
			set(slices.Clone(found))
		}
		pause := resolveEvery
		if !known {
			pause = resolveFirst
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause*9/10 + rand.N(pause/5)):
		}
	}
}

// lookUp returns the members that the name stands for now, sorted. None is no error.
func (d *dnsSource) lookUp(ctx context.Context) ([]Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	find := d.addresses
	if d.port == "" {
		find = d.services
	}
	hosts, err := find(ctx)
	peers := make([]Peer, len(hosts))
	for i, host := range hosts {
		peers[i] = Peer{URL: "//" + host}
	}
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.URL, b.URL) })
	return slices.Compact(peers), err
}

// addresses returns those of the first kind of address that the name has any of.
func (d *dnsSource) addresses(ctx context.Context) ([]string, error) {
	for _, network := range d.networks() {
		addrs, err := d.resolver.LookupNetIP(ctx, network, d.host)
		if err != nil && !notFound(err) {
			return nil, err
		}
		if len(addrs) == 0 {
			continue
		}
		hosts := make([]string, len(addrs))
		for i, addr := range addrs {
			hosts[i] = net.JoinHostPort(addr.Unmap().String(), d.port)
		}
		return hosts, nil
	}
	return nil, nil
}

// networks returns the kinds of address to ask for, in turn.
func (d *dnsSource) networks() []string {
	if _, err := netip.ParseAddr(d.host); err == nil {
		return []string{"ip"}
	}
	host, _ := hostPort(d.here.self)
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
		return []string{"ip6", "ip4"}
	}
	return []string{"ip4", "ip6"}
}

// services returns the targets of the SRV records.
func (d *dnsSource) services(ctx context.Context) ([]string, error) {
	_, records, err := d.resolver.LookupSRV(ctx, "", "", d.host)
	if err != nil && !notFound(err) {
		return nil, err
	}
	hosts := make([]string, 0, len(records))
	for _, r := range records {
		if target := strings.ToLower(strings.TrimSuffix(r.Target, ".")); target != "" { // "." says that the service is not there
			hosts = append(hosts, net.JoinHostPort(target, strconv.Itoa(int(r.Port))))
		}
	}
	return hosts, nil
}

// notFound reports whether the servers know for certain that there are no such records.
func notFound(err error) bool {
	var failed *net.DNSError
	return errors.As(err, &failed) && failed.IsNotFound && !failed.IsTemporary
}
