// What the tests of this package see of its inside.

package l2

// The scripts, for tests that send them themselves or count them.
var (
	ScriptClaim      = scriptClaim
	ScriptFill       = scriptFill
	ScriptAbandon    = scriptAbandon
	ScriptRenew      = scriptRenew
	ScriptInvalidate = scriptInvalidate
)
