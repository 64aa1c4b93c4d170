package onefill_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"

	"github.com/onefill/onefill/internal/wire"
)

func newResponse() http.ResponseWriter { return httptest.NewRecorder() }
func helloRequest() *http.Request {
	b := wire.AppendHello(wire.Begin(nil), &wire.Hello{Namespace: "x", ID: "y", Incarnation: 1, Session: 1})
	r := httptest.NewRequest("POST", "/_onefill/v1", bytes.NewReader(b))
	r.Header.Set("Content-Type", "application/x-onefill")
	return r
}
