// Package prom exports a registry to Prometheus: one collector that reads one consistent snapshot per scrape. Every kind
// and every (fate, by) pair that can occur is there at zero from the start; what has not happened is absent.
package prom

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-proxy/lastcall/tracker"
)

// Config sets up a Collector.
type Config struct {
	Registry   *tracker.Registry
	Directions []tracker.Direction // those that are configured; default: inbound
	Pod, Namespace, Node,
	Version, Revision, GoVersion string
}

// Collector is a prometheus.Collector over a registry.
type Collector struct {
	cfg Config
	d   descs
}

type descs struct {
	connOpen, connOpened, connFates, inFlight, longLived, streamOpened, streamFates, duration, age, bytes,
	phase, started, deadline, survivors, late, lastArrival, farewells, lostTrack, dialErrors, tlsErrors, pod, build, kindChanges, rehearsed, reconnects *prometheus.Desc
}

// ageBounds are the upper bounds of the age histogram's buckets, in seconds: from a request's length to a working day.
func ageBounds() []float64 { return []float64{0.1, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 43200} }

// New makes a collector.
func New(cfg Config) *Collector {
	if len(cfg.Directions) == 0 {
		cfg.Directions = []tracker.Direction{tracker.Inbound}
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("lastcall_"+name, help, labels, nil)
	}
	return &Collector{cfg: cfg, d: descs{
		connOpen:     desc("connections_open", "Connections that are open.", "direction", "protocol"),
		connOpened:   desc("connections_opened_total", "Connections accepted, by what they were first taken for.", "direction", "protocol"),
		connFates:    desc("connection_fates_total", "Connections that ended, by fate and by who ended them.", "direction", "protocol", "fate", "by"),
		inFlight:     desc("requests_in_flight", "Streams in flight that are not long-lived.", "direction", "kind"),
		longLived:    desc("long_lived_streams_open", "Streams in flight that a drain window can't outwait.", "direction", "kind"),
		streamOpened: desc("streams_opened_total", "Streams begun, by what they were first taken for.", "direction", "kind"),
		streamFates:  desc("stream_fates_total", "Streams that ended, by fate and by who ended them.", "direction", "kind", "fate", "by"),
		duration:     desc("stream_duration_seconds", "How long ended streams lived.", "direction", "kind"),
		age:          desc("open_stream_age_seconds", "How old the streams are that are open now.", "direction", "kind"),
		bytes:        desc("bytes_total", "Bytes relayed, by their source.", "direction", "from"),
		phase:        desc("drain_phase", "1 for the phase the drain is in.", "phase"),
		started:      desc("drain_started_timestamp_seconds", "When the drain was triggered."),
		deadline:     desc("drain_deadline_timestamp_seconds", "When the drain cuts what is left."),
		survivors:    desc("drain_survivors", "Streams open now that were open when the drain began.", "kind"),
		late:         desc("drain_late_arrivals_total", "Arrivals after the drain began, by what they got.", "what", "answer"),
		lastArrival:  desc("drain_last_arrival_offset_seconds", "How long after the drain's start the last arrival came.", "what"),
		farewells:    desc("farewells_total", "Goodbyes said, by whether the peer obeyed.", "kind", "obeyed"),
		lostTrack:    desc("observer_lost_track_total", "Connections whose bytes an observer stopped understanding.", "protocol", "reason"),
		dialErrors:   desc("app_dial_errors_total", "Failed attempts to reach the app.", "reason"),
		tlsErrors:    desc("tls_handshake_errors_total", "Failed TLS handshakes.", "direction", "reason"),
		rehearsed:    desc("reconnect_last_rehearsed_timestamp_seconds", "When the clients' coming back was last rehearsed."),
		reconnects:   desc("reconnects_total", "Clients whose streams a rehearsal took, by whether they came back.", "outcome"),
		pod:          desc("pod_info", "The pod this runs in.", "pod", "namespace", "node"),
		build:        desc("build_info", "The build of lastcall.", "version", "revision", "goversion"),
		kindChanges:  desc("kind_changes_total", "Records that turned out to be of another kind: opened + in - out == open + fates holds per kind.", "direction", "what", "from", "to"),
	}}
}

// Describe is prometheus.Collector's. It names every metric, those too that have not happened yet: a scrape's result must
// not depend on what the registry saw at registration.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	d := &c.d
	for _, desc := range []*prometheus.Desc{
		d.connOpen, d.connOpened, d.connFates, d.inFlight, d.longLived, d.streamOpened, d.streamFates, d.duration, d.age, d.bytes,
		d.phase, d.started, d.deadline, d.survivors, d.late, d.lastArrival, d.farewells, d.lostTrack, d.dialErrors, d.tlsErrors, d.pod, d.build, d.kindChanges, d.rehearsed, d.reconnects,
	} {
		ch <- desc
	}
}

// Collect is prometheus.Collector's.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	n := c.cfg.Registry.Counts()
	put := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	for _, dir := range c.cfg.Directions {
		d := dir.String()
		for _, kind := range tracker.AllKinds() {
			k := kind.String()
			put(c.d.connOpened, counter, float64(n.Opened[tracker.WhatConnection][dir][kind]), d, k)
			put(c.d.connOpen, gauge, float64(n.Open[tracker.WhatConnection][dir][kind]), d, k)
			put(c.d.streamOpened, counter, float64(n.Opened[tracker.WhatStream][dir][kind]), d, k)
			for _, fate := range tracker.AllFates() {
				for _, by := range tracker.AllParties() {
					if tracker.CanOccur(tracker.WhatConnection, kind, fate, by) {
						put(c.d.connFates, counter, float64(n.Fates[tracker.WhatConnection][dir][kind][fate][by]), d, k, fate.String(), by.String())
					}
					if tracker.CanOccur(tracker.WhatStream, kind, fate, by) {
						put(c.d.streamFates, counter, float64(n.Fates[tracker.WhatStream][dir][kind][fate][by]), d, k, fate.String(), by.String())
					}
				}
			}
			for _, to := range tracker.AllKinds() {
				for _, what := range []tracker.What{tracker.WhatConnection, tracker.WhatStream} {
					if v := n.KindChanges[what][dir][kind][to]; v > 0 {
						put(c.d.kindChanges, counter, float64(v), d, what.String(), k, to.String())
					}
				}
			}
			h := &n.Durations[dir][kind]
			ch <- prometheus.MustNewConstHistogram(c.d.duration, h.Count, float64(h.SumNS)/1e9, cumulate(tracker.DurationBounds(), h.Buckets[:]), d, k)
		}
		put(c.d.bytes, counter, float64(n.Bytes[dir].Client), d, "client")
		put(c.d.bytes, counter, float64(n.Bytes[dir].App), d, "app")
		for _, r := range n.HandshakeErrors[dir] {
			put(c.d.tlsErrors, counter, float64(r.N), d, r.Reason)
		}
	}
	c.ages(ch, &n)
	c.drain(put, &n)
	for _, l := range n.LostTrack {
		put(c.d.lostTrack, counter, float64(l.N), l.Kind.String(), l.Reason)
	}
	for _, r := range n.DialErrors {
		put(c.d.dialErrors, counter, float64(r.N), r.Reason)
	}
	last, found := c.cfg.Registry.Rehearsals()
	if last != 0 {
		put(c.d.rehearsed, gauge, float64(last)/1e9)
	}
	for _, o := range tracker.AllReconnects() {
		put(c.d.reconnects, counter, float64(found[o]), o.String())
	}
	put(c.d.pod, gauge, 1, c.cfg.Pod, c.cfg.Namespace, c.cfg.Node)
	put(c.d.build, gauge, 1, c.cfg.Version, c.cfg.Revision, c.cfg.GoVersion)
}

func (c *Collector) drain(put func(*prometheus.Desc, prometheus.ValueType, float64, ...string), n *tracker.Counts) {
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	for _, p := range tracker.AllPhases() {
		v := 0.0
		if p == n.Phase {
			v = 1
		}
		put(c.d.phase, gauge, v, p.String())
	}
	for _, k := range tracker.AllKinds() {
		put(c.d.survivors, gauge, float64(n.SurvivorsOpen[k]), k.String())
	}
	for _, what := range []tracker.What{tracker.WhatConnection, tracker.WhatStream} {
		for _, a := range tracker.AllAnswers() {
			put(c.d.late, counter, float64(n.Late[what][a]), what.String(), a.String())
		}
		if n.DrainStartedAt != 0 && n.LastLate[what] >= 0 {
			put(c.d.lastArrival, gauge, float64(n.LastLate[what])/1e9, what.String())
		}
	}
	for _, f := range tracker.AllFarewells() {
		put(c.d.farewells, counter, float64(n.Farewells[f][0]), f.String(), "false")
		put(c.d.farewells, counter, float64(n.Farewells[f][1]), f.String(), "true")
	}
	if n.DrainStartedAt != 0 {
		put(c.d.started, gauge, float64(n.DrainStartedAt)/1e9)
		put(c.d.deadline, gauge, float64(n.DrainDeadline)/1e9)
	}
}

// ages exports what depends on the streams' ages now.
func (c *Collector) ages(ch chan<- prometheus.Metric, n *tracker.Counts) {
	type key struct {
		d tracker.Direction
		k tracker.Kind
	}
	type acc struct {
		buckets []uint64
		count   uint64
		sum     float64
		long    int64
	}
	bounds := ageBounds()
	all := make(map[key]*acc)
	for _, d := range c.cfg.Directions {
		for _, k := range tracker.AllKinds() {
			all[key{d, k}] = &acc{buckets: make([]uint64, len(bounds)+1)}
		}
	}
	c.cfg.Registry.OpenAges(c.cfg.Registry.Now(), func(d tracker.Direction, k tracker.Kind, age time.Duration, longLived bool) {
		a := all[key{d, k}]
		if a == nil {
			return
		}
		i := 0
		for i < len(bounds) && age.Seconds() > bounds[i] {
			i++
		}
		a.buckets[i]++
		a.count++
		a.sum += age.Seconds()
		if longLived {
			a.long++
		}
	})
	for k, a := range all {
		d, kind := k.d.String(), k.k.String()
		ch <- prometheus.MustNewConstHistogram(c.d.age, a.count, a.sum, cumulate(bounds, a.buckets), d, kind)
		// The ages were read a moment after the counts. The counts rule, so that opened == in flight + long-lived + fates holds
		// in every scrape.
		open := n.Open[tracker.WhatStream][k.d][k.k]
		long := min(a.long, open)
		ch <- prometheus.MustNewConstMetric(c.d.inFlight, prometheus.GaugeValue, float64(open-long), d, kind)
		ch <- prometheus.MustNewConstMetric(c.d.longLived, prometheus.GaugeValue, float64(long), d, kind)
	}
}

func cumulate(bounds []float64, buckets []uint64) map[float64]uint64 {
	m := make(map[float64]uint64, len(bounds))
	var n uint64
	for i, b := range bounds {
		n += buckets[i]
		m[b] = n
	}
	return m
}
