package tracker

// Limits of what a record keeps of its peer's words, in bytes. What is longer is cut.
const (
	maxPath      = 512
	maxAuthority = 128
	maxUserAgent = 128
	maxMethod    = 32
	maxIdentity  = 128
	maxReason    = 256
)

// maxAgents bounds the distinct user agents a shard keeps for its connections' records. A full table is emptied: strings
// in use stay alive through the records.
const maxAgents = 256

// ConnFacts is what is known of a connection when it opens.
type ConnFacts struct {
	Direction Direction
	Listener  string
	App       string // where it goes: address or unix:PATH
	Client    string // address
	OpenedAt  int64  // ns since the epoch; 0: now
}

// facts are the unchanging words of a connection. They are shared by its record and those of its streams, which outlive
// it in the ring; so they are replaced as a whole, never changed in place.
type facts struct {
	listener, app, client string
	sni, alpn, identity   string
}

func (f *facts) size() int {
	// The listener's and the app's name are shared by all connections of a listener.
	return 6*16 + len(f.client) + len(f.sni) + len(f.alpn) + len(f.identity)
}

// knownMethod returns a static string for the methods of RFC 9110 §9, RFC 5789 and RFC 4918, and "" for others.
func knownMethod(b []byte) string {
	switch string(b) {
	case "GET":
		return "GET"
	case "HEAD":
		return "HEAD"
	case "POST":
		return "POST"
	case "PUT":
		return "PUT"
	case "PATCH":
		return "PATCH"
	case "DELETE":
		return "DELETE"
	case "OPTIONS":
		return "OPTIONS"
	case "CONNECT":
		return "CONNECT"
	case "TRACE":
		return "TRACE"
	case "PROPFIND":
		return "PROPFIND"
	case "REPORT":
		return "REPORT"
	}
	return ""
}

func clip(b []byte, n int) []byte {
	if len(b) > n {
		return b[:n]
	}
	return b
}

func clipString(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// side is the index of a party in the pairs that records keep per flow: 0 for the client, 1 for the app.
func side(p Party) int {
	if p == ByApp {
		return 1
	}
	return 0
}
