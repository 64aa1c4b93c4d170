// What an observer of a mesh is told: each leg of a read, as it begins and ends. Package tracing implements Observer with OpenTelemetry.

package onefill

import "context"

// Observer watches trips. It must be safe for concurrent use and must not block. A fresh hit is no trip.
type Observer interface {
	// Begin is called when a trip begins; the context that it returns is used for the rest of the trip, so that trips nest. The function that it returns
	// is called once, when the trip ends.
	Begin(context.Context, *Trip) (context.Context, func(Result))
}

// TripKind is the kind of a trip.
type TripKind uint8

// The trips of one read, in the order in which they happen.
const (
	TripGet        TripKind = iota + 1 // a Get that was no fresh hit, until its caller has the value
	TripFetch                          // asking another process
	TripServe                          // answering another process
	TripClaim                          // asking the tier: read or claim
	TripWait                           // waiting for another cluster's load
	TripLoad                           // the loader
	TripStore                          // handing the value to the tier
	TripInvalidate                     // Delete, Set and their kind
)

var tripNames = [...]string{"", "get", "fetch", "serve", "claim", "wait", "load", "store", "invalidate"}

func (k TripKind) String() string {
	if int(k) < len(tripNames) {
		return tripNames[k]
	}
	return "unknown"
}

// Trip is one leg of a read as it begins.
type Trip struct {
	Kind       TripKind
	Group, Key string
	Peer       string // fetch: who is asked; serve: who asks
	Background bool   // nobody waits for it: a trace of its own

	// Trace is a W3C traceparent. For a serve it is the asking trip's, where one came. For a fetch and a load the observer sets it to the trip's own, to
	// travel with the question or with the value.
	Trace string
	// Baggage is name, value, name, value, …: set by the observer for a fetch, for the names in BaggageKeys; given to it for a serve.
	Baggage     []string
	BaggageKeys []string
}

// Result is how a trip ended.
type Result struct {
	Outcome Outcome
	Err     error
	Number  uint64 // of the value
	Load    string // traceparent of the load that made the value, where it was not this trip's own
}

// Outcome says where a value came from, or that there is none.
type Outcome string

// The outcomes of a trip.
const (
	OutcomeLocal    Outcome = "local"
	OutcomeHot      Outcome = "hot"
	OutcomePeer     Outcome = "peer"
	OutcomeTier     Outcome = "tier"
	OutcomeLoaded   Outcome = "loaded"
	OutcomeStale    Outcome = "stale"
	OutcomeNotFound Outcome = "not_found"
	OutcomeFailed   Outcome = "failed"
)

// begin tells the observer, if there is one. Without one nothing is allocated: all share a trip that nobody reads.
func (m *Mesh) begin(ctx context.Context, t Trip) (context.Context, *Trip, func(Result)) {
	if m.observer == nil {
		return ctx, &noTrip, endNoTrip
	}
	trip := t // escapes, t does not
	ctx, end := m.observer.Begin(ctx, &trip)
	return ctx, &trip, end
}

var noTrip Trip

func endNoTrip(Result) {}
