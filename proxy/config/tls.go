package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// tlsOption takes an option of --inbound: the key of tls or app_tls with dashes. ALPN names are separated by "|".
func (l *Listener) tlsOption(name, val string) (err error) {
	if key, ok := strings.CutPrefix(name, "app-tls-"); ok {
		if l.AppTLS == nil {
			l.AppTLS = &AppTLS{}
		}
		switch key {
		case "ca":
			l.AppTLS.CA = val
		case "server-name":
			l.AppTLS.ServerName = val
		case "cert":
			l.AppTLS.Cert = val
		case "key":
			l.AppTLS.Key = val
		case "insecure":
			if l.AppTLS.Insecure, err = strconv.ParseBool(val); err != nil {
				return errors.New("want true or false")
			}
		default:
			return errors.New("unknown")
		}
		return nil
	}
	if l.TLS == nil {
		l.TLS = &TLS{}
	}
	switch strings.TrimPrefix(name, "tls-") {
	case "cert":
		l.TLS.Cert = val
	case "key":
		l.TLS.Key = val
	case "client-ca":
		l.TLS.ClientCA = val
	case "client-auth":
		l.TLS.ClientAuth = val
	case "min-version":
		l.TLS.MinVersion = val
	case "alpn":
		l.TLS.ALPN = strings.Split(val, "|")
	case "handshake-timeout":
		if l.TLS.HandshakeTimeout, err = time.ParseDuration(val); err != nil {
			return fmt.Errorf("%q: want a duration", val)
		}
	default:
		return errors.New("unknown")
	}
	return nil
}

// validateTLS checks what can be checked without the files.
func (l *Listener) validateTLS() error {
	if t := l.TLS; t != nil {
		if t.ClientAuth == "" && t.ClientCA != "" {
			t.ClientAuth = "require"
		}
		switch {
		case t.Cert == "" || t.Key == "":
			return errors.New("tls: want both cert and key")
		case !contains([]string{"", "none", "request", "require"}, t.ClientAuth):
			return fmt.Errorf("tls: client_auth %q: want none, request or require", t.ClientAuth)
		case t.ClientCA == "" && (t.ClientAuth == "request" || t.ClientAuth == "require"):
			return fmt.Errorf("tls: client_auth %s: needs client_ca", t.ClientAuth)
		case !contains([]string{"", "1.2", "1.3"}, t.MinVersion):
			return fmt.Errorf("tls: min_version %q: want 1.2 or 1.3", t.MinVersion)
		case t.HandshakeTimeout < 0:
			return fmt.Errorf("tls: handshake_timeout %v: must not be negative", t.HandshakeTimeout)
		case l.ProxyProtocol != "":
			return errors.New("tls: not together with proxy_protocol: the header would come in front of TLS, which is not supported yet")
		}
	}
	if t := l.AppTLS; t != nil {
		switch {
		case t.ServerName == "" && !t.Insecure:
			return errors.New("app_tls: want server_name, or insecure: true")
		case t.Insecure && t.CA != "":
			return errors.New("app_tls: ca and insecure contradict each other")
		case (t.Cert == "") != (t.Key == ""):
			return errors.New("app_tls: want both cert and key, or neither")
		case strings.HasPrefix(l.App, "unix:"):
			return errors.New("app_tls: not over a unix socket")
		case l.SendProxyProtocol != "":
			return errors.New("app_tls: not together with send_proxy_protocol: the header would have to go in front of TLS, which is not supported yet")
		}
	}
	return nil
}
