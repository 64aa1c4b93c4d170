module github.com/onefill/onefill

go 1.26.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/hashicorp/golang-lru/v2 v2.0.7
	github.com/klauspost/compress v1.20.4
	github.com/miekg/dns v1.1.73
	github.com/redis/go-redis/v9 v9.23.0
	golang.org/x/net v0.57.0
	google.golang.org/protobuf v1.33.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
)
