// Package peers is the pool of a mesh: who is out there, who owns a key, and how to ask, over HTTP.
//
//	pool, err := peers.NewPool("https://10.0.0.3:7946", peers.DNS("users.prod.svc:7946"), peers.Config{Secrets: []string{secret}})
//	mesh, err := onefill.New(onefill.Config{Namespace: "shop-prod", Peers: pool})
//	go pool.ListenAndServe()
//
// A [Source] names the members: [Static] a fixed list, [DNS] whatever a name stands for. All processes of a pool must know each other by the same names,
// which for these two are URLs.
//
// # Who may speak
//
// With [Config.Secrets] processes that share a secret speak TLS 1.3 to each other and to nobody else; with [Config.TLS] the certificates are your own. A pool
// on a loopback address needs neither. Any other refuses to start without, unless [Config.Insecure] says that the network protects it. Whoever gets in is
// trusted: it may read, set and delete what is cached.
//
// # Who is alive
//
// Slow is not dead. A process that works on a question says so every quarter of [Config.PeerSilence], so a load may take as long as it takes. A process of
// which nothing is heard for PeerSilence, or that refuses connections, is asked nothing more, and the next in rank owns its keys until it answers a ping.
//
// # Serving
//
// [Pool.Serve] and [Pool.ListenAndServe] run a server with every bound set, of its own port. To share a port with other handlers mount the pool:
//
//	mux.Handle(peers.Path, pool)
//
// The server around it then needs read, header and idle timeouts of its own, and with Secrets or TLS [Pool.TLSConfig].
//
// # What to expect
//
// Peers speak HTTP/1.1, many questions in one request and at most 64 connections to a peer; proxies of the environment are not used. Everything exported is
// safe for concurrent use, and every goroutine ends with Mesh.Close.
package peers
