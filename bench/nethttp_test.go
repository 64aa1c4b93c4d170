package bench

// Plain net/http as a contender: what a fetch costs when nothing is added to a GET and a map.

import (
	"fmt"
	"io"
	"net/http"
	"testing"
)

// serveNetHTTP is a role: a process that answers GET /<key> out of a map that nobody writes any more, so that it needs no lock.
func serveNetHTTP(out io.Writer, _ []string) error {
	listener, err := listen()
	if err != nil {
		return err
	}
	values := make(map[string][]byte, peerKeys)
	for _, key := range userKeys(peerKeys) {
		values[key] = makeValue(key, valueSize)
	}
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		value, ok := values[r.URL.Path[1:]]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write(value)
	}))
	return speak(out, "http://"+listener.Addr().String())
}

// connectNetHTTP reads with a client over HTTP/1.1 and reads each body to its end.
func connectNetHTTP(b *testing.B) ([]string, read) {
	url := startSecond(b, "serve nethttp")
	client := &http.Client{Transport: keepAliveTransport()}
	b.Cleanup(client.CloseIdleConnections)
	return userKeys(peerKeys), func(key string) (int, error) {
		response, err := client.Get(url + "/" + key)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return 0, fmt.Errorf("the second process answered %s", response.Status)
		}
		value, err := io.ReadAll(response.Body)
		return len(value), err
	}
}

// keepAliveTransport is http.DefaultTransport with a connection to keep for each of the callers, instead of two in all.
func keepAliveTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	return transport
}
