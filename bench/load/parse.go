package load

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseSpec reads KIND=TARGET[,key=value…]. Errors name the key.
func ParseSpec(text string) (Spec, error) {
	kind, rest, ok := strings.Cut(text, "=")
	if !ok {
		return Spec{}, fmt.Errorf("%q: want KIND=TARGET", text)
	}
	parts := strings.Split(rest, ",")
	s := Spec{Kind: Kind(kind), Target: parts[0]}
	seen := map[string]bool{}
	for _, p := range parts[1:] {
		key, v, ok := strings.Cut(p, "=")
		if !ok {
			return s, fmt.Errorf("%q: want key=value", p)
		}
		if seen[key] {
			return s, fmt.Errorf("%s=%s: was there already", key, v)
		}
		seen[key] = true
		if err := s.set(key, v); err != nil {
			return s, fmt.Errorf("%s=%s: %w", key, v, err)
		}
	}
	return s, s.Validate()
}

// set takes one value. A zero is refused where it would become the default.
func (s *Spec) set(key, v string) error {
	switch key {
	case "rate":
		return number(&s.Rate, v, "a number of requests a second", func(t string) (float64, error) { return strconv.ParseFloat(t, 64) })
	case "conns":
		return number(&s.Conns, v, "a whole number", strconv.Atoi)
	case "sessions":
		return number(&s.Sessions, v, "a whole number", strconv.Atoi)
	case "size":
		n, err := strconv.Atoi(v)
		if err != nil {
			return errors.New("want a number of bytes")
		}
		s.Size = n
	case "interval":
		return number(&s.Interval, v, aDuration, time.ParseDuration)
	case "timeout":
		return number(&s.Timeout, v, aDuration, time.ParseDuration)
	case "over":
		return number(&s.Over, v, aDuration, time.ParseDuration)
	case "lag":
		d, err := time.ParseDuration(v)
		if err != nil {
			return errors.New("want " + aDuration)
		}
		s.Lag = d
	case "data":
		b, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			return errors.New("want base64")
		}
		s.Data = b
	case "retry":
		s.Retry = v
	case "ready":
		s.Ready = v
	case "next":
		s.Next = v
	case "mode":
		s.Mode = Mode(v)
	case "insecure":
		return truth(&s.Insecure, v)
	case "resume":
		return truth(&s.Resume, v)
	default:
		return errors.New("unknown key; the keys are rate, conns, sessions, interval, timeout, size, over, data, mode, resume, retry, insecure, ready, next, lag")
	}
	return nil
}

const aDuration = "a duration such as 5s"

func number[T int | float64 | time.Duration](to *T, v, want string, parse func(string) (T, error)) error {
	n, err := parse(v)
	if err != nil {
		return errors.New("want " + want)
	}
	if !(n > 0) {
		return errors.New("want " + want + ", more than 0")
	}
	*to = n
	return nil
}

func truth(to *bool, v string) error {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return errors.New("want true or false")
	}
	*to = b
	return nil
}
