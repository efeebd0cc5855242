package main

import (
	"encoding/xml"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// h2spec plays its cases, the strict ones too, against addr, and tells which passed.
func h2spec(t *testing.T, program, addr string) map[string]bool {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "junit.xml")
	_ = exec.CommandContext(t.Context(), program, "--strict", "--host", host, "--port", port, "--timeout", "2", "--junit-report", file).Run() // its status is 1 when a case fails
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Suites []struct {
			Cases []struct {
				Package string    `xml:"package,attr"`
				Name    string    `xml:"classname,attr"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	passed := map[string]bool{}
	for _, s := range doc.Suites {
		for _, c := range s.Cases {
			passed[c.Package+" "+c.Name] = c.Failure == nil && c.Error == nil && c.Skipped == nil
		}
	}
	return passed
}

// The conformance suite sees the app through us as it sees it without us: every case that passes one way passes the other.
// A few depend on who is first (a server that answers before it closes): a case counts as passed that did so in one of
// three runs, which are made when they are needed.
func TestH2Spec(t *testing.T) {
	program, err := filepath.Abs("../../bin/interop/h2spec")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		need(t, "h2spec", "make interop")
		program = "h2spec"
	}
	for name, serve := range map[string]func(*testing.T) string{"Go": h2Go, "nghttpd": nghttpd} {
		t.Run(name, func(t *testing.T) {
			app := serve(t)
			p, addr := front(t, app)
			direct, through := map[string]bool{}, map[string]bool{}
			for try := 0; try == 0 || try < 3 && !maps.Equal(direct, through); try++ {
				for c, ok := range h2spec(t, program, app) {
					direct[c] = direct[c] || ok
				}
				for c, ok := range h2spec(t, program, addr) {
					through[c] = through[c] || ok
				}
			}
			passed := 0
			for c, ok := range direct {
				if ok {
					passed++
				}
				if ok != through[c] {
					t.Errorf("%s: passed=%t without us, passed=%t through us", c, ok, through[c])
				}
			}
			if len(direct) < 140 || passed < 130 {
				t.Errorf("%d cases, %d passed: the suite did not run", len(direct), passed)
			}
			t.Logf("%d cases, %d passed either way", len(direct), passed)
			if err := p.scrape(t).balance(); err != nil {
				t.Error(err)
			}
		})
	}
}

func h2Go(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Protocols: &p, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "hello")
	})}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	return ln.Addr().String()
}

func nghttpd(t *testing.T) string {
	t.Helper()
	need(t, "nghttpd", "Debian: nghttp2-server")
	addrs, err := freeAddrs(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "index.html"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("nghttpd", "--address", "127.0.0.1", "--htdocs", dir, "--no-tls", port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for began := time.Now(); ; pause(t.Context(), 10*time.Millisecond) {
		if c, err := net.Dial("tcp", addrs[0]); err == nil {
			_ = c.Close()
			return addrs[0]
		}
		if time.Since(began) > 5*time.Second {
			t.Fatal("nghttpd does not listen")
		}
	}
}
