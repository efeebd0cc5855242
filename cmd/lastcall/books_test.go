package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// metrics is one scrape, each family summed up over its labels.
type metrics map[string]float64

func (p *process) scrape(t *testing.T) metrics {
	t.Helper()
	d := &demoRun{}
	b, err := d.get(t.Context(), p.telemetry, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	m := metrics{}
	for line := range strings.Lines(string(b)) {
		name, _, _ := strings.Cut(line, "{")
		at := strings.LastIndexByte(line, ' ')
		if line[0] == '#' || at < 0 {
			continue
		}
		name, _, _ = strings.Cut(name, " ")
		v, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err == nil {
			m[name] += v
		}
	}
	return m
}

// balance is what a dashboard would add up: opened == open + ended, for connections and for streams.
func (m metrics) balance() error {
	const pre = "lastcall_"
	opened, open, ended := m[pre+"connections_opened_total"], m[pre+"connections_open"], m[pre+"connection_fates_total"]
	if opened != open+ended {
		return fmt.Errorf("connections: opened %.0f, open %.0f, ended %.0f", opened, open, ended)
	}
	opened, open, ended = m[pre+"streams_opened_total"], m[pre+"requests_in_flight"]+m[pre+"long_lived_streams_open"], m[pre+"stream_fates_total"]
	if opened != open+ended {
		return fmt.Errorf("streams: opened %.0f, open %.0f, ended %.0f", opened, open, ended)
	}
	return nil
}

// watchBooks scrapes until stop is closed and returns how often; each scrape must balance.
func (p *process) watchBooks(t *testing.T, stop <-chan struct{}) (scrapes int) {
	t.Helper()
	for every := time.NewTicker(100 * time.Millisecond); ; scrapes++ {
		if err := p.scrape(t).balance(); err != nil {
			t.Errorf("scrape %d: %v", scrapes, err)
		}
		select {
		case <-stop:
			every.Stop()
			return scrapes
		case <-every.C:
		}
	}
}
