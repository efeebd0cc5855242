package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// demo runs the main job in one terminal: an app, this same binary as its sidecar, clients in front; then SIGTERM, and the
// account of what happened to each. It returns the exit status.
func demo(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	app, err := startDemoApp(ctx)
	if err != nil {
		return err
	}
	defer app.stop()
	addrs, err := freeAddrs(ctx, 4)
	if err != nil {
		return err
	}
	d := &demoRun{out: out, start: time.Now(), web: addrs[0], tcp: addrs[1], telemetry: addrs[2], admin: addrs[3]}
	if err := d.startSidecar(ctx, app); err != nil {
		return err
	}
	if err := d.play(ctx); err != nil {
		_ = d.cmd.Process.Kill() // it may be gone already
		return err
	}
	return nil
}

// demoRun is one run of the demo.
type demoRun struct {
	out                        io.Writer
	start                      time.Time
	web, tcp, telemetry, admin string
	cmd                        *exec.Cmd
	logs                       sync.WaitGroup

	mu    sync.Mutex
	fates []demoFate
	other []string // the sidecar's lines that are not fates, for when it fails
}

// demoFate is what the demo shows of a fate line.
type demoFate struct {
	ID      string  `json:"id"`
	Conn    string  `json:"conn"`
	Kind    string  `json:"kind"`
	Path    string  `json:"path"`
	Fate    string  `json:"fate"`
	By      string  `json:"by"`
	How     string  `json:"how"`
	Stage   string  `json:"stage"`
	Late    bool    `json:"late"`
	Offset  float64 `json:"drain_offset_s"`
	Waiting string  `json:"waiting_on"`
	Age     float64 `json:"age_s"`
	Logger  string  `json:"logger"`
}

func freeAddrs(ctx context.Context, n int) ([]string, error) {
	var lc net.ListenConfig
	addrs := make([]string, 0, n)
	for range n {
		l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("demo: %w", err)
		}
		defer func() { _ = l.Close() }()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

func (d *demoRun) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _ = fmt.Fprintf(d.out, "%6.1fs  %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demoRun) startSidecar(ctx context.Context, app *demoApp) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.cmd = exec.CommandContext(ctx, self, "run",
		"--inbound", d.web+"="+app.http.Addr().String(), "--inbound", d.tcp+"="+app.tcp.Addr().String(),
		"--telemetry", d.telemetry, "--admin", d.admin,
		"--lameduck", "2s", "--drain-timeout", "14s", "--closing-window", "4s", "--termination-message", os.DevNull)
	logs, err := d.cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := d.cmd.Start(); err != nil {
		return fmt.Errorf("demo: sidecar: %w", err)
	}
	d.logs.Go(func() { d.readLogs(logs) })
	for {
		if body, err := d.get(ctx, d.telemetry, "/readyz"); err == nil && body != nil {
			d.say("sidecar ready: %s in front of an app", d.web)
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return errors.New("demo: the sidecar did not become ready: " + strings.Join(d.other, " "))
		}
	}
}

func (d *demoRun) readLogs(r io.Reader) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var f demoFate
		err := json.Unmarshal(sc.Bytes(), &f)
		d.mu.Lock()
		if err == nil && f.Logger == "fate" {
			d.fates = append(d.fates, f)
		} else if len(d.other) < 100 {
			d.other = append(d.other, sc.Text())
		}
		d.mu.Unlock()
	}
}

func (d *demoRun) get(ctx context.Context, addr, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, err
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err == nil && res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, res.Status)
	}
	return body, err
}

// play opens the connections, asks the sidecar to stop and watches until it is gone.
func (d *demoRun) play(ctx context.Context) error {
	clients := &demoClients{web: d.web, tcp: d.tcp, say: func(who, what string) { d.say("    client: %-16s %s", who, what) }}
	short, err := clients.request(ctx, "/fast", func() {})
	if err != nil {
		return err
	}
	d.say("    client: %-16s %s", "short request", short)
	if err := clients.start(ctx); err != nil {
		return err
	}
	d.say("six connections are open; SIGTERM")
	term := time.Now()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("demo: signal: %w", err)
	}
	late := func(after time.Duration, who string) {
		clients.wg.Go(func() {
			if !pause(ctx, time.Until(term.Add(after))) {
				return
			}
			what, err := clients.request(ctx, "/fast", func() {})
			if err != nil {
				what = err.Error()
			}
			d.say("    client: %-16s %s", who, what)
		})
	}
	late(time.Second, "new in lameduck")
	late(3*time.Second, "new in draining")

	gone := make(chan error, 1)
	go func() {
		d.logs.Wait()
		gone <- d.cmd.Wait()
	}()
	var books string
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	phase, shown := "", time.Time{}
	for {
		select {
		case err := <-gone:
			clients.wg.Wait()
			d.say("sidecar gone: %s", exitText(err))
			return d.account(books, err)
		case <-ctx.Done():
			return errors.New("demo: the sidecar did not end in time")
		case <-tick.C:
			if b := d.balance(ctx); b != "" {
				books = b
			}
			phase, shown = d.watch(ctx, phase, shown)
		}
	}
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// watch shows the phase when it changes, and every two seconds who still holds the drain.
func (d *demoRun) watch(ctx context.Context, phase string, shown time.Time) (string, time.Time) {
	body, err := d.get(ctx, d.admin, "/v1/drain")
	if err != nil {
		return phase, shown
	}
	var v struct {
		Phase string `json:"phase"`
	}
	if json.Unmarshal(body, &v) != nil || (v.Phase == phase && time.Since(shown) < 2*time.Second) {
		return phase, shown
	}
	if v.Phase != phase {
		d.say("-- %s", v.Phase)
	}
	body, err = d.get(ctx, d.admin, "/v1/streams?state=survivors")
	if err != nil {
		return v.Phase, time.Now()
	}
	var list struct {
		Streams []demoFate `json:"streams"`
	}
	if json.Unmarshal(body, &list) == nil {
		for _, s := range list.Streams {
			d.say("      holds: %-6s %-10s %-8s open %.1fs, waiting on %s", s.ID, s.Kind, s.Path, s.Age, s.Waiting)
		}
	}
	return v.Phase, time.Now()
}

// balance reads the books from the metrics: opened == open + Σ fates.
func (d *demoRun) balance(ctx context.Context) string {
	body, err := d.get(ctx, d.telemetry, "/metrics")
	if err != nil {
		return ""
	}
	sum := make(map[string]float64)
	for line := range strings.Lines(string(body)) {
		name, _, ok := strings.Cut(line, "{")
		if !ok {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &v); err == nil {
			sum[name] += v
		}
	}
	opened, open, ended := sum["lastcall_connections_opened_total"], sum["lastcall_connections_open"], sum["lastcall_connection_fates_total"]
	return fmt.Sprintf("last scrape: %.0f connections opened == %.0f open + %.0f ended", opened, open, ended)
}

// account prints the fates and proves that each connection has exactly one.
func (d *demoRun) account(books string, exit error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, _ = fmt.Fprintf(d.out, "\n%-7s %-10s %-9s %-10s %-9s %-9s %-9s %s\n", "ID", "KIND", "PATH", "FATE", "BY", "HOW", "STAGE", "AFTER SIGTERM")
	conns := make(map[string]int)
	for _, f := range d.fates {
		at := "-"
		if f.Offset > 0 {
			at = fmt.Sprintf("%+.1fs", f.Offset)
		}
		if f.Late {
			at += " (late)"
		}
		if f.Conn == "" {
			conns[f.ID]++
		}
		_, _ = fmt.Fprintf(d.out, "%-7s %-10s %-9s %-10s %-9s %-9s %-9s %s\n", f.ID, f.Kind, f.Path, f.Fate, f.By, f.How, f.Stage, at)
	}
	_, _ = fmt.Fprintf(d.out, "\n%s\n", books)
	for id, n := range conns {
		if n != 1 {
			return fmt.Errorf("demo: connection %s has %d fates, want 1", id, n)
		}
	}
	const made = 9 // one short, six long, two late
	if len(conns) < made {
		return fmt.Errorf("demo: %d connections have a fate, want %d", len(conns), made)
	}
	_, _ = fmt.Fprintf(d.out, "books: %d connections, one fate each\n", len(conns))
	if exit != nil {
		return fmt.Errorf("demo: sidecar: %w; it said: %s", exit, strings.Join(d.other, " "))
	}
	return nil
}
