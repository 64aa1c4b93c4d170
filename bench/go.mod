module github.com/onefill/onefill/bench

go 1.26.0

require (
	github.com/golang/groupcache v0.0.0-20241129210726-2c02b8208cf8
	github.com/hashicorp/golang-lru/v2 v2.0.7
	github.com/maypok86/otter/v2 v2.4.0
	github.com/onefill/onefill v0.0.0
	github.com/viccon/sturdyc v1.1.5
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	golang.org/x/net v0.57.0 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
)

replace github.com/onefill/onefill => ../
