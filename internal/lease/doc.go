// Package lease holds the mechanisms under every lease that a store grants: running a script with a bound of one's own (Runner), one subscription for all
// who wait (Subscription), one loop that renews and notices losses (Keeper), the lease's own clock (Validity), and one line per name inside the process
// (Queue).
//
// It knows nothing of what is leased. The scripts, the keys and the promises stand with their users: package lock for what people coordinate with, package
// l2 for claims on cache entries.
package lease
