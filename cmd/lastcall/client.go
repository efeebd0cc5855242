package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// client asks a running sidecar over its admin address.
type client struct {
	addr, tokenFile string
}

// bind adds the flags that say whom to ask; LASTCALL_ADMIN and LASTCALL_ADMIN_TOKEN_FILE are their defaults.
func (c *client) bind(cmd *cobra.Command) {
	addr := os.Getenv("LASTCALL_ADMIN")
	if addr == "" {
		addr = "127.0.0.1:4183"
	}
	cmd.Flags().StringVar(&c.addr, "admin", addr, "the sidecar's admin address")
	cmd.Flags().StringVar(&c.tokenFile, "admin-token-file", os.Getenv("LASTCALL_ADMIN_TOKEN_FILE"), "file with the admin API's bearer token")
}

// token reads the token file; without one there is no token.
func (c *client) token() (string, error) {
	if c.tokenFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--admin-token-file: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// requestTime bounds one question; the sidecar is beside us.
const requestTime = 10 * time.Second

// ask makes one call and decodes its answer into v.
func (c *client) ask(ctx context.Context, method, path string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.addr+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("--admin %q: %w", c.addr, err)
	}
	token, err := c.token()
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		return failed(fmt.Errorf("no sidecar at %s: %w", c.addr, err))
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, 64<<20))
	if err != nil {
		return failed(fmt.Errorf("answer of %s: %w", c.addr, err))
	}
	if res.StatusCode >= 300 {
		var e struct {
			Error struct{ Message string }
		}
		if json.Unmarshal(body, &e) != nil || e.Error.Message == "" {
			e.Error.Message = res.Status
		}
		return failed(fmt.Errorf("%s: %s", c.addr, e.Error.Message))
	}
	if err := json.Unmarshal(body, v); err != nil {
		return failed(fmt.Errorf("answer of %s: %w", c.addr, err))
	}
	return nil
}
