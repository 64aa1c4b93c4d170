// docs/redis.md against what is so: the rights that it lists, the figures that it gives, the example for another language.

package l2_test

import (
	"os"
	"strings"
	"testing"
)

// document returns the text of docs/redis.md.
func document(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// block returns the first code block after a heading.
func block(t *testing.T, heading string) string {
	t.Helper()
	_, rest, _ := strings.Cut(document(t), heading)
	_, rest, _ = strings.Cut(rest, "```")
	_, rest, _ = strings.Cut(rest, "\n")
	code, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatalf("docs/redis.md has no code after %q", heading)
	}
	return code
}

// documentedRules returns the ACL rules that docs/redis.md gives.
func documentedRules(t *testing.T) string {
	t.Helper()
	_, rules, found := strings.Cut(block(t, "## Rights"), ">secret")
	if !found {
		t.Fatal("docs/redis.md gives no rules")
	}
	return rules
}
