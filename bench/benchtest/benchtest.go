// Package benchtest builds and starts the program's binaries for tests that drive them as anybody's.
package benchtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Binaries is where Main has put them.
var Binaries string

// BinariesEnv names them to a test that runs itself again, in another namespace say.
const BinariesEnv = "LASTCALL_TEST_BINARIES"

// Main builds lastcall and lastcallctl, runs the tests and exits. It is for a TestMain in a package two folders below the
// module's root.
func Main(m *testing.M) {
	if Binaries = os.Getenv(BinariesEnv); Binaries != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "lastcall-*")
	if err != nil {
		panic(err)
	}
	Binaries = dir
	for _, name := range []string{"lastcall", "lastcallctl"} {
		if out, err := exec.Command("go", "build", "-o", Path(name), "../../cmd/"+name).CombinedOutput(); err != nil {
			panic(string(out))
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// Path is a binary's.
func Path(name string) string { return filepath.Join(Binaries, name) }

// The ports that Free gives lie below those that the kernel gives to outgoing connections (ip_local_port_range begins at
// 32768), so that no client of another test can take one before its server does.
const firstPort, lastPort = 18_000, 32_000

// Free gives a loopback address that nobody listens at.
func Free(t *testing.T) string {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.N(lastPort-firstPort)))
		if err != nil {
			continue
		}
		defer func() { _ = ln.Close() }()
		return ln.Addr().String()
	}
	t.Fatal("no port is free")
	return ""
}

// Spawn starts a binary and waits until addr accepts. It is killed with the test; what it said is shown if the test fails.
func Spawn(t *testing.T, addr, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(Path(name), args...)
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = log.Close()
		if b, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s said: %.2000s", name, b)
		}
	})
	WaitFor(t, addr)
	return cmd
}

// WaitFor waits until addr accepts.
func WaitFor(t *testing.T, addr string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("nobody listens at %s", addr)
		}
	}
}
