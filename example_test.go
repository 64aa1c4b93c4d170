package onefill_test

// The README's code is in here, and a test sees to it that it stays the same.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

type User struct {
	Name     string
	Archived bool
}

// usersDB stands for a database.
type usersDB struct{}

func (usersDB) User(ctx context.Context, id string) (*User, error) {
	if id != "42" {
		return nil, onefill.ErrNotFound
	}
	return &User{Name: "Ada"}, nil
}

func (usersDB) Users(ctx context.Context, ids []string) (map[string]*User, error) {
	return map[string]*User{"42": {Name: "Ada"}}, nil
}

var db usersDB

// What a program does at its start. The processes find each other under a name of the DNS and share a secret.
func Example_wiring() {
	serve := func(ctx context.Context, self, secret string) error {
		pool, err := peers.NewPool(self, peers.DNS("users.prod.svc:7946"), peers.Config{Secrets: []string{secret}})
		if err != nil {
			return err
		}
		mesh, err := onefill.New(onefill.Config{Namespace: "shop-prod", Peers: pool})
		if err != nil {
			return err
		}
		defer mesh.Close(context.WithoutCancel(ctx))
		users, err := onefill.NewGroup(mesh, "users", db.User, onefill.TTL(5*time.Minute))
		if err != nil {
			return err
		}
		go pool.ListenAndServe() // or on the program's own server: mux.Handle(peers.Path, pool)

		u, err := users.Get(ctx, "42")
		if err != nil {
			return err
		}
		fmt.Println(u.Name)
		return nil
	}
	if err := serve(context.Background(), "https://10.0.0.3:7946", os.Getenv("ONEFILL_SECRET")); err != nil {
		fmt.Println(err)
	}
}

func Example() {
	mesh, err := onefill.New(onefill.Config{Namespace: "example"}) // a pool of one
	if err != nil {
		fmt.Println(err)
		return
	}
	defer mesh.Close(context.Background())
	users, err := onefill.NewGroup(mesh, "users", db.User)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		u, err := users.Get(context.Background(), "42")
		fmt.Println(u.Name, err)
	}
	fmt.Println(users.Stats().Loads, "load")
	// Output:
	// Ada <nil>
	// Ada <nil>
	// Ada <nil>
	// 1 load
}

// A loader says by its error that there is no value, and by FillFrom what is special about one.
func ExampleFillFrom() {
	mesh, users := exampleUsers(func(ctx context.Context, id string) (*User, error) {
		u, err := db.User(ctx, id)
		if err == nil && u.Archived { // it will not change any more
			onefill.FillFrom(ctx).SetTTL(24 * time.Hour)
		}
		return u, err
	}, onefill.NotFoundTTL(time.Second))
	defer mesh.Close(context.Background())

	_, err := users.Get(context.Background(), "43")
	fmt.Println(errors.Is(err, onefill.ErrNotFound))
	// Output: true
}

// With LoadBatch the keys that one process owns are loaded in one call.
func ExampleGroup_GetMulti() {
	mesh, users := exampleUsers(db.User, onefill.LoadBatch(db.Users))
	defer mesh.Close(context.Background())

	found, err := users.GetMulti(context.Background(), []string{"42", "43"})
	fmt.Println(found["42"].Name, len(found), errors.Is(err, onefill.ErrNotFound))
	// Output: Ada 1 true
}

// After a change in the database the cached value is dropped everywhere.
func ExampleGroup_Delete() {
	mesh, users := exampleUsers(db.User)
	defer mesh.Close(context.Background())

	err := users.Delete(context.Background(), "42")
	var missed *onefill.InvalidateError
	if errors.As(err, &missed) {
		fmt.Println("may serve the old value until it expires:", missed.Unreached)
	}
	_, cached := users.Peek("42")
	fmt.Println(cached)
	// Output: false
}

// Set saves a load where the new value is at hand.
func ExampleGroup_Set() {
	mesh, users := exampleUsers(db.User)
	defer mesh.Close(context.Background())

	err := users.Set(context.Background(), "7", &User{Name: "Grace"}, onefill.SetTTL(time.Minute))
	if err != nil {
		fmt.Println(err)
	}
	u, err := users.Get(context.Background(), "7")
	fmt.Println(u.Name, err)
	// Output: Grace <nil>
}

func exampleUsers(load onefill.Loader[*User], options ...onefill.Option) (*onefill.Mesh, *onefill.Group[*User]) {
	mesh, err := onefill.New(onefill.Config{Namespace: "example"})
	if err != nil {
		panic(err)
	}
	users, err := onefill.NewGroup(mesh, "users", load, options...)
	if err != nil {
		panic(err)
	}
	return mesh, users
}

func TestTheReadmesCodeIsThatOfCompiledExamples(t *testing.T) {
	var compiled strings.Builder
	for _, file := range []string{"example_test.go", "peers/example_test.go"} {
		compiled.WriteString(flattened(readText(t, file)))
	}
	blocks := strings.Split(readText(t, "README.md"), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Fatal("the README has no Go code")
	}
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(compiled.String(), flattened(code)) {
			t.Errorf("not in any example:\n%s", code)
		}
	}
}

// flattened takes the indentation and the empty lines out of code.
func flattened(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

func readText(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
